//go:build !linux

package nstest

import (
	"os"
	"testing"
)

// Main is a TestMain for packages whose tests open sockets on loopback.
func Main(m *testing.M) { os.Exit(m.Run()) }
