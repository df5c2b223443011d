package carrier_test

import (
	"os"
	"runtime/debug"
	"testing"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // hundreds of small worlds are created and become garbage
	os.Exit(m.Run())
}
