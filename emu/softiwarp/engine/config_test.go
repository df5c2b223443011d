package engine

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

func TestConfigRejectsInvalidValues(t *testing.T) {
	for name, c := range map[string]Config{
		"negative limit":   {Limits: nic.Limits{QPs: -1}},
		"too many regions": {Limits: nic.Limits{MRs: 1 << 24}},
		"QP numbers":       {FirstQPN: 1<<24 - 10},
		"revision":         {MPA: mpa.Config{MaxRevision: 3}},
		"model":            {MPA: mpa.Config{MaxRevision: 1, PeerToPeer: true}},
	} {
		must.Fail(t, name, must.Err(New(c)), ErrConfig)
	}
	must.Do(t, must.Err(New(Config{FirstQPN: 1<<24 - 10, Limits: nic.Limits{QPs: 10}}))) // up to the largest number
	n := must.Get(New(Config{}))(t)
	if c := n.Config(); c.FirstQPN != 0x11 || c.CloseTimeout != 5*time.Second || c.Limits.RdAtomic != 128 || c.MPA.MaxIRD != 128 {
		t.Errorf("%+v", c)
	}
}

func TestCounterNamesAreUnique(t *testing.T) {
	a, b := newHost(t), newHost(t)
	p := connect(t, a, b)
	p.ca.Disconnect(0)
	p.run()
	seen := map[string]uint64{}
	for _, c := range a.nic.Counters() {
		if _, twice := seen[c.Name]; twice {
			t.Errorf("two counters are called %s", c.Name)
		}
		seen[c.Name] = c.Value
	}
	if seen["conns"] != 1 || seen["conns_established"] != 1 || seen["conns_closed"] != 1 || seen["conns_failed"] != 0 || seen["mpa_requests_sent"] != 1 {
		t.Errorf("%v", seen)
	}
}

// rows has a test for the requirements that neither an MPA connection nor a stream can meet alone,
// by their numbers in the list of requirements.
var rows = testutil.JoinRequirements(closeRows, startRows, queueRows)

func TestRequirements(t *testing.T) {
	rows.Run(t)
	// The requirements that the lists of the other two packages leave to the engine.
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
