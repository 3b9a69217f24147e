from joyrlinf_core.launcher.stacks import main_stack

DUMP = """\
Thread 0x00007f41 (most recent call first):
  File "/a/threading.py", line 331 in wait
  File "/a/worker.py", line 9 in watch

Current thread 0x00007f42 (most recent call first):
  File "/a/reach.py", line 101 in chunk_step
  File "/a/local.py", line 82 in recv
"""


def test_the_main_thread_is_the_last_one_of_the_last_dump():
    older = DUMP.replace("chunk_step", "reset")
    expected = [
        'File "/a/reach.py", line 101 in chunk_step',
        'File "/a/local.py", line 82 in recv',
    ]
    assert main_stack(f"started\n{older}\n{DUMP}") == expected
    assert main_stack(DUMP + "something printed later\n") == expected


def test_only_the_innermost_frames_are_shown():
    deep = DUMP + '  File "/a/engine.py", line 1 in run\n' * 40
    assert len(main_stack(deep)) == 8


def test_a_log_without_a_dump_has_no_stack():
    assert main_stack("") == []
    assert main_stack("Traceback (most recent call last):\n") == []
