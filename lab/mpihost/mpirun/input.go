package mpirun

import (
	"os"
	"os/exec"
)

// withInput starts a process with our standard input.
func withInput(cmd *exec.Cmd) error {
	takeInput(cmd)
	return cmd.Start()
}

// takeInput gives a process our standard input, unless that is a terminal: a process
// group in the background must not read from one.
func takeInput(cmd *exec.Cmd) {
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice == 0 {
		cmd.Stdin = os.Stdin
	}
}
