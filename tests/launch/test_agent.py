from dlrmx.launch.agent import agent_env


def test_the_agent_gets_the_shell_without_what_would_steer_it() -> None:
    shell = {
        "PATH": "/bin",
        "NCCL_DEBUG": "INFO",
        "OMP_NUM_THREADS": "64",
        "TORCHX_SESSION_NAME": "x",
        "TORCHELASTIC_ERROR_FILE": "/tmp/x",
        "PET_NNODES": "4",
        "DLRMX_JOB": "{}",
        "DLRMX_PARENT": "1",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "MASTER_PORT": "29500",
    }
    env = agent_env(shell, {"OF_PROFILE": "a,b $c"}, workers=1000)
    assert env == {
        "PATH": "/bin",
        "NCCL_DEBUG": "INFO",
        "PYTHONUNBUFFERED": "1",
        "PYTHONSAFEPATH": "1",
        "OMP_NUM_THREADS": "1",
        "OF_PROFILE": "a,b $c",
    }


def test_the_profile_has_the_last_word() -> None:
    assert agent_env({}, {"OMP_NUM_THREADS": "7"}, workers=1)["OMP_NUM_THREADS"] == "7"
