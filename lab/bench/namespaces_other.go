//go:build !linux

package bench

import (
	"context"
	"errors"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// Namespaces needs Linux.
type Namespaces struct{}

var errNotLinux = errors.New("network namespaces need Linux: use the simulated bench")

// InNamespaces fails.
func InNamespaces(*nics.Provider, NamespaceOptions) (*Namespaces, error) { return nil, errNotLinux }

// Try fails.
func (*Namespaces) WithBench(context.Context, conformance.BenchSpec, func(*conformance.Bench) error) error {
	return errNotLinux
}

// Close does nothing.
func (*Namespaces) Close() error { return nil }
