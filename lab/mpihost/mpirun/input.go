package mpirun

import (
	"os"
	"os/exec"
)

// startWithStdin starts a process with the standard input of this process, as passStdin
// does.
func startWithStdin(cmd *exec.Cmd) error {
	passStdin(cmd)
	return cmd.Start()
}

// passStdin gives a process the standard input of this process, unless it is a
// terminal, from which a background process group must not read.
func passStdin(cmd *exec.Cmd) {
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice == 0 {
		cmd.Stdin = os.Stdin
	}
}
