//go:build !linux

package main

import "errors"

// pinnedMain fails: the ranks that it binds to CPUs need the network namespaces of Linux.
func pinnedMain([]string) error { return errors.ErrUnsupported }

// execInNetNS fails: it needs the network namespaces of Linux.
func execInNetNS(string, []string) error { return errors.ErrUnsupported }
