"""The live oracle: real processes of PyTorch and DeepSpeed hold zerocalc to the byte.

    python -m pip install -e '.[live,test]'
    python -m pytest -m live tests/live

Small models train for three steps in two to four gloo processes on this machine's CPU. Of the third step every
collective is counted (operation, element type, bytes, group), and after it every storage that is still alive; zerocalc
is asked about the same job the way a user asks (the model's `config.json`, DeepSpeed's own file, settings by their
names), and every difference must be 0. Nothing here runs by default: the marker `live` keeps it out, and a missing
package skips it with the reason. Two busy cores take nine minutes; DeepSpeed compiles a small extension when it
first runs (three more). Part of it: `-k "zero3 and w2"` (strategy and ranks), `-k stage3`, `-k peak`.

Which module does what:

- `models`: the models, as configurations, built by transformers; `cases`: what is run and what zerocalc is asked.
- `torch_runs`, `deepspeed_runs`: run one case on one rank, between `recorder` switched on and off.
- `processes`: the ranks as processes on 127.0.0.1: one free port, a timeout for every case, killed on failure.
- `test_pytorch`, `test_deepspeed`: the lists of cases, and the comparison; a few are watched for their peak, which is
  within 5%. `test_emit`: what zerocalc writes is taken.

When a framework is released:

1. Install it beside the others and run the command above; `test_versions` says which releases were last held.
2. Every difference names the rank, the state or the message: `(measured, zerocalc)`. A case that no longer runs fails
   with the traceback of the rank it failed on.
3. Where the framework changed, change `zerocalc/frameworks/` (a default that moved: the setting's `default` and
   `changed`), and the recorded runs' tests where they should now be dated.
4. When nothing differs, put the new numbers into `HELD` in `test_versions`.
"""
