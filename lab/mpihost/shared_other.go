//go:build !linux

package mpihost

import (
	"errors"
	"os"

	"github.com/fabrictest/fabrictest/mpi/env"
)

var errLinux = errors.New("ranks in processes need network namespaces, which only Linux has; they run in simulation here")

// NewShared says that there is nothing of the kind here.
func NewShared(string) (*os.File, error) { return nil, errLinux }

func openShared(int) (env.SharedMemory, error) { return nil, errLinux }
