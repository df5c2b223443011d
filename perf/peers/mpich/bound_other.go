//go:build !linux

package main

import "errors"

// boundMain is never asked for: there are no network namespaces.
func boundMain([]string) error { return errors.ErrUnsupported }
