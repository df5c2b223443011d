package engine

import (
	"testing"

	"github.com/fabrictest/fabrictest/internal/testutil"
)

// rows has a test for the requirements that neither an MPA connection nor a
// stream can meet by itself, by their numbers in the list of requirements.
var rows = testutil.Join(closeRows, startRows, queueRows)

func TestRequirements(t *testing.T) {
	rows.Run(t)
	// What the lists of the other two packages leave to the engine.
	for _, id := range []string{
		"rfc5041/6.2/1", "rfc5041/6.2.1/1", "rfc5041/6.2.1/2", "rfc5041/6.2.1/3", "rfc5041/6.2.2/1",
		"rfc5040/5.3/6", "rfc5040/6.2.1/3", "rfc5040/8.1.1/1", "rfc5040/8.1.1/2",
		"rfc5042/6.4.3.1/1", "rfc5042/6.4.3.3/1", "rfc5042/6.4.6/1",
		"rfc6581/5/1", "rfc6581/9.2/11", "rfc6581/9.2/12", "rfc6581/9.3/1",
	} {
		if rows[id] == nil {
			t.Errorf("%s has no test", id)
		}
	}
}
