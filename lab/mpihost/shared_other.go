//go:build !linux

package mpihost

import (
	"errors"
	"os"

	"github.com/fabrictest/fabrictest/mpi/transport"
)

var errLinux = errors.New("ranks in processes need network namespaces, which only Linux has; they run in simulation here")

// NewSharedMemory fails: ranks in processes need Linux.
func NewSharedMemory(string) (*os.File, error) { return nil, errLinux }

func openSharedMemory(int) (transport.SharedMemory, error) { return nil, errLinux }
