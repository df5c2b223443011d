package softiwarp

import (
	"runtime"
	"testing"

	"github.com/fabrictest/fabrictest/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.SetParallel(runtime.GOMAXPROCS(0) + 1) // one waits for silent streams, the others compute
	testutil.NamespaceMain(m)
}
