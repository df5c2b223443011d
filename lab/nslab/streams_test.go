package nslab

import (
	"testing"

	"github.com/fabrictest/fabrictest/report"
)

// Each event breaks a connection once, and the requests are repeated.
func TestStreamEventsReconnectOnBothTiers(t *testing.T) {
	t.Parallel()
	runOnBothTiers(t, `
fabric: {kind: star, hosts: 2}
nic: {provider: softiwarp}
events:
  - {on: [host0], conn: 1, offset: 50001, do: reset}
  - {on: [host1], way: in, conn: 2, offset: 50001, do: corrupt_bit, bit: 5}
  - {on: [host0], conn: 3, offset: 50001, do: drop}
  - {on: [host0], conn: 3, offset: 90001, do: delay, delay: 1ms}
workload: {kind: stream, op: send, messages: 100, bytes: 4KiB, think: 100us, reconnect: true}
expect: {delivered: exactly-once, memory: identical, lost: {min: 1, max: 1}, reconnects: {min: 4, max: 4}}
`, func(t *testing.T, r *report.Result) {
		passed(t, r)
		var bad, failed uint64
		for _, k := range r.Ranks {
			bad += k.Counters["mpa_bad_crcs"]
			failed += k.Counters["sent_terminates"]
		}
		if bad != 1 || failed != 1 {
			t.Errorf("%d wrong CRCs were found, %d Terminates sent", bad, failed)
		}
	})
}

func TestIncompatibleScenariosAreRejected(t *testing.T) {
	runOnBothTiers(t, "fabric: {kind: pair}\nnic: {provider: softiwarp}\nworkload: {kind: stream, services: [ud]}\n", func(t *testing.T, r *report.Result) {
		if r.Verdict != report.Broken || r.Reason != "test.yaml:5:17: nic.provider: soft-iWARP has no ud" {
			t.Errorf("%s: %s", r.Verdict, r.Reason)
		}
	})
}
