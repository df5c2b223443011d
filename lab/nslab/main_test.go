package nslab

import (
	"fmt"
	"os"
	"testing"

	"github.com/fabrictest/fabrictest/internal/testutil"
)

// TestMain also runs the lab and rank processes of the tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case LabCommand:
			exit(LabMain())
		case RankCommand:
			exit(RankMain())
		case testbedCommand:
			exit(runTestbedBody())
		}
	}
	// A run waits as long as it computes; more of them would be late for each other.
	testutil.SetParallel(4)
	os.Exit(m.Run())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
