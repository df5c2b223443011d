package iwarp

import (
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestCountersAreListedWithTheirReasons(t *testing.T) {
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
	c.TerminatesSent.Add(wire.TermError{Layer: wire.LayerDDP, Type: 0, Code: 77}) // its code says nothing
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
