package wire

import (
	"testing"

	"github.com/fabrictest/fabrictest/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.SetParallel(8) // each test has its own namespaces, and mostly waits
	testutil.NamespaceMain(m)
}
