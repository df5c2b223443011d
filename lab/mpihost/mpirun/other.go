//go:build !linux

package mpirun

import (
	"context"
	"errors"

	"github.com/fabrictest/fabrictest/verbs"
)

var errLinux = errors.New("ranks in processes need network namespaces, which only Linux has; use --on sim here")

// InNamespaces fails: namespaces need Linux.
func InNamespaces(context.Context, Config) (Result, error) { return Result{}, errLinux }

// OnDevices fails: ranks in processes share memory as only Linux has it.
func OnDevices(context.Context, verbs.Provider, Config) (Result, error) { return Result{}, errLinux }

// OnHosts fails, as OnDevices does.
func OnHosts(context.Context, Config) (Result, error) { return Result{}, errLinux }

// ProxyMain fails, as OnHosts does.
func ProxyMain() (int, error) { return 0, errLinux }

// ProcessMain fails: namespaces need Linux.
func ProcessMain() (int, error) { return 0, errLinux }
