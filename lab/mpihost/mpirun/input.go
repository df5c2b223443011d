package mpirun

import (
	"os"
	"os/exec"
)

// withStdin returns a function that starts a process as start does, with the standard input of
// this process, unless it is a terminal, from which a background process group must not read.
func withStdin(start func(*exec.Cmd) error) func(*exec.Cmd) error {
	return func(cmd *exec.Cmd) error {
		if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice == 0 {
			cmd.Stdin = os.Stdin
		}
		return start(cmd)
	}
}
