package softiwarp

import (
	"runtime"
	"testing"

	"github.com/fabrictest/fabrictest/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.SetParallel(runtime.GOMAXPROCS(0) + 1) // one test waits for timeouts, the others compute
	testutil.NamespaceMain(m)
}
