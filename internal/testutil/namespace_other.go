//go:build !linux

package testutil

import (
	"os"
	"testing"
)

// NamespaceMain is a TestMain for packages whose tests bind ports on loopback. It runs the tests in
// the host network: only Linux has namespaces.
func NamespaceMain(m *testing.M) { os.Exit(m.Run()) }
