package iwarp

import (
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestCountersListTerminatesByError(t *testing.T) {
	value := func(list []verbs.Counter, name string) int {
		i := slices.IndexFunc(list, func(c verbs.Counter) bool { return c.Name == name })
		if i < 0 {
			t.Errorf("no counter %s", name)
			return -1
		}
		return int(list[i].Value)
	}
	var c Counters
	empty := c.List()
	c.TerminatesSent.Add(wire.TermUntaggedNoBuffer)
	c.TerminatesSent.Add(wire.TermError{Layer: wire.LayerDDP, Type: 0, Code: 77}) // a local error has no codes
	c.TerminatesReceived.Add(wire.TermError{Layer: 9, Type: 9, Code: 9})
	list := c.List()
	if len(list) != len(empty) {
		t.Errorf("%d counters, then %d", len(empty), len(list))
	}
	for name, want := range map[string]int{
		"sent_terminates": 2, "sent_terminate_1_2_02": 1, "sent_terminate_1_0_00": 1, "sent_terminate_other": 0,
		"rcvd_terminates": 1, "rcvd_terminate_1_2_02": 0, "rcvd_terminate_other": 1,
	} {
		if got := value(list, name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
}

// rows has a test for every requirement of DDP, RDMAP and RFC 7306 that concerns a stream, by
// requirement number.
var rows = testutil.JoinRequirements(
	ddpSendRows, ddpReceiveRows, ddpErrorRows,
	sendRows, writeRows, readRows, respondRows, orderRows, terminateRows, checkRows,
	atomicRows, immediateRows, securityRows,
)

// delegated says which part implements the other requirements.
var delegated = map[string]string{
	"rfc5041/5.3/3":     "the layer below delivers each octet once",
	"rfc5041/6.2/1":     "the engine closes the connection after the Terminate",
	"rfc5041/6.2.1/1":   "the engine closes the connection",
	"rfc5041/6.2.1/2":   "the engine rejects posted requests",
	"rfc5041/6.2.1/3":   "the engine keeps its direction open",
	"rfc5041/6.2.2/1":   "the engine reports a lost stream",
	"rfc5040/5.3/6":     "the engine arms completion queues",
	"rfc5040/6.2.1/3":   "the engine closes the connection",
	"rfc5040/8.1.1/1":   "the engine's memory table assigns keys",
	"rfc5040/8.1.1/2":   "the engine has the completion queues",
	"rfc5042/6.4.3.1/1": "the engine has the shared receive queues",
	"rfc5042/6.4.3.3/1": "the engine tests it with two streams",
	"rfc5042/6.4.6/1":   "the engine has the completion queues",
	"rfc5042/x/1":       "package mpa parses start-up frames",
}

// sections is the number of requirements in each section.
var sections = map[string]int{
	"rfc5041/4.1": 8, "rfc5041/4.2": 3, "rfc5041/4.3": 5, "rfc5041/5.2": 6, "rfc5041/5.3": 5, "rfc5041/5.4": 2, "rfc5041/6.2": 1,
	"rfc5041/6.2.1": 3, "rfc5041/6.2.2": 2, "rfc5041/7.1": 13, "rfc5041/7.2": 2, "rfc5041/8.2": 2, "rfc5041/8.3.1": 1,
	"rfc5040/3.1": 1, "rfc5040/4.1": 5, "rfc5040/4.2": 1, "rfc5040/4.4": 3, "rfc5040/4.8": 6, "rfc5040/5.1": 4, "rfc5040/5.2": 1,
	"rfc5040/5.2.1": 10, "rfc5040/5.2.2": 7, "rfc5040/5.3": 9, "rfc5040/5.4": 6, "rfc5040/5.5": 10, "rfc5040/6.1": 3,
	"rfc5040/6.2.1": 3, "rfc5040/7.1": 5, "rfc5040/7.2": 4, "rfc5040/8.1.1": 4,
	"rfc6580/3.1": 1, "rfc6580/3.3": 1, "rfc6580/3.4": 1,
	"rfc7306/1.1": 1, "rfc7306/4.1": 2, "rfc7306/5": 3, "rfc7306/5.1.1": 3, "rfc7306/5.1.2": 3, "rfc7306/5.2": 2, "rfc7306/5.2.1": 5,
	"rfc7306/5.2.2": 3, "rfc7306/5.4": 3, "rfc7306/6.3": 4, "rfc7306/6.4": 1, "rfc7306/8.1": 1, "rfc7306/8.2": 1,
	"rfc5042/6.1.1": 2, "rfc5042/6.2.1": 1, "rfc5042/6.2.2": 1, "rfc5042/6.3.5": 2, "rfc5042/6.4.3.1": 1, "rfc5042/6.4.3.3": 1,
	"rfc5042/6.4.5": 1, "rfc5042/6.4.6": 1, "rfc5042/x": 2,
}

func TestRequirements(t *testing.T) { rows.Run(t) }

func TestEveryRequirementHasATestOrAReason(t *testing.T) { rows.ExpectComplete(t, sections, delegated) }
