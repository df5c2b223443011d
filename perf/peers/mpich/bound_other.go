//go:build !linux

package main

import "errors"

// boundMain is not used without network namespaces.
func boundMain([]string) error { return errors.ErrUnsupported }
