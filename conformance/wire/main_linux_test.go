package wire

import (
	"testing"

	"github.com/fabrictest/fabrictest/internal/testutil"
)

func TestMain(m *testing.M) { testutil.NamespaceMain(m) }
