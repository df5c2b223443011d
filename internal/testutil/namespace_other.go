//go:build !linux

package testutil

import (
	"os"
	"testing"
)

// NamespaceMain is a TestMain for packages whose tests open sockets on loopback.
func NamespaceMain(m *testing.M) { os.Exit(m.Run()) }
