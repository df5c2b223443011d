//go:build !linux

package mpirun

import (
	"context"
	"errors"
)

var errLinux = errors.New("ranks in processes need network namespaces, which only Linux has; use --on sim here")

// InNamespaces says that there are no namespaces here.
func InNamespaces(context.Context, Run) (Result, error) { return Result{}, errLinux }

// ProcessMain says that there are no namespaces here.
func ProcessMain() (int, error) { return 0, errLinux }
