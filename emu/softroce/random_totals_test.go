package softroce

import (
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/scenarios/random"
	"github.com/fabrictest/fabrictest/verbs"
)

// randomTotals are the totals of many random cases.
type randomTotals struct {
	cases, lanes, reliable, gaveUp int
	requests                       int
	bytes                          int64
	delivered, lost                int // of unreliable messages
	counters                       map[string]uint64
	took                           time.Duration // virtual; of the longest
}

func totalsOf(results [2]*random.Result) randomTotals {
	t := randomTotals{cases: 1, counters: map[string]uint64{}}
	for _, r := range results {
		for _, l := range r.Lanes {
			t.lanes++
			t.requests += l.Sent.Posted
			t.bytes += l.Received.Bytes
			if l.Service.Reliable() {
				t.reliable++
				if l.Sent.Failed != verbs.WCSuccess {
					t.gaveUp++
				}
			} else {
				t.delivered += l.Received.Delivered
				t.lost += l.Received.Lost
			}
		}
		for _, c := range r.Counters {
			t.counters[c.Name] += c.Value
		}
	}
	return t
}

func (t *randomTotals) add(o randomTotals) {
	t.cases += o.cases
	t.lanes += o.lanes
	t.reliable += o.reliable
	t.gaveUp += o.gaveUp
	t.requests += o.requests
	t.bytes += o.bytes
	t.delivered += o.delivered
	t.lost += o.lost
	t.took = max(t.took, o.took)
	if t.counters == nil {
		t.counters = map[string]uint64{}
	}
	for name, v := range o.counters {
		t.counters[name] += v
	}
}

func (t randomTotals) String() string {
	s := fmt.Sprintf("%d cases, %d requests and %d bytes checked; %d of %d reliable lanes gave up; %d of %d unreliable messages lost; longest %v",
		t.cases, t.requests, t.bytes, t.gaveUp, t.reliable, t.lost, t.lost+t.delivered, t.took)
	for _, name := range variety {
		s += fmt.Sprintf("; %s %d", name, t.counters[name])
	}
	return s
}

// variety are the counters of things that random cases must bring about, or
// else they test less than they should.
var variety = []string{
	"retransmitted_pkts", "ack_timeout", "duplicate_request", "out_of_seq_request", "sent_seq_nak", "sent_rnr_nak", "implied_nak",
	"stale_response", "ecn_marked", "cnps_handled", "drop_icrc", "drop_short", "drop_no_receive", "drop_sequence", "retry_exceeded",
}

func (t *randomTotals) checkVariety(tt *testing.T) {
	for _, name := range variety {
		if t.counters[name] < 10 {
			tt.Errorf("%s is %d in %d cases: they no longer reach that part", name, t.counters[name], t.cases)
		}
	}
	// A lane that gives up is checked less far.
	if t.gaveUp*10 > t.reliable {
		tt.Errorf("%d of %d reliable lanes gave up: the networks are too bad, or retries are wasted", t.gaveUp, t.reliable)
	}
}
