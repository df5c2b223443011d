package nslab

import (
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/report"
)

// Without netem in the kernel, the result has the reason and advice.
func TestNetemReplacesSwitch(t *testing.T) {
	t.Parallel()
	r := run(t, `
fabric: {kind: pair}
impair: [{way: out, loss: 5%}]
workload: {kind: stream, op: send, messages: 200, bytes: 1KiB, timeout: 60ms}
expect: {retransmits: {min: 1}}
`, lab.Options{Netem: true})
	for _, c := range netns.Probe() {
		if c.Name == "netem" && c.State != netns.Yes {
			if r.Verdict != report.Broken || !strings.Contains(r.Reason, "netem") {
				t.Fatalf("without netem: %s: %s", r.Verdict, r.Reason)
			}
			return
		}
	}
	passed(t, r)
	if lost := r.Links[0].Lost["kernel"]; lost == 0 {
		t.Errorf("netem lost nothing: %+v", r.Links)
	}
}

func TestNetemRejectsUnsupportedImpairments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"events: [{on: [host0], nth: 3, do: drop}]":                                "change single packets",
		"impair: [{way: in, loss: 5%}]":                                            "none of those it receives",
		"impair: [{way: out, rate: 1Gbit}]":                                        "loss, delay, jitter",
		"faults: [{at: 1ms, for: 1ms, do: partition, groups: [[host0], [host1]]}]": "partition hosts",
	} {
		r := run(t, text+`
fabric: {kind: pair}
workload: {kind: pingpong, messages: 10}
`, lab.Options{Netem: true})
		if r.Verdict != report.Broken || !strings.Contains(r.Reason+r.Detail, want) {
			t.Errorf("%s: %s: %s %s; want %q", text, r.Verdict, r.Reason, r.Detail, want)
		}
	}
}
