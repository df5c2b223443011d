//go:build !linux

package main

import "errors"

// pinnedMain is not used without network namespaces.
func pinnedMain([]string) error { return errors.ErrUnsupported }
