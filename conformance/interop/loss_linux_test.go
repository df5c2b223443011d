package interop_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance/interop"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/nslab"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/scenarios"
)

// lossyPair returns two hosts with a switch between them that drops 5 % of the packets.
func lossyPair(t *testing.T) (hosts [2]*testutil.Host) {
	t.Helper()
	if why := testutil.NamespacesUnavailable(); why != nil {
		t.Skipf("no network namespaces here: %v", why)
	}
	const text = "version: 1\nname: lossy\ntitle: Lossy\nworkload: {kind: all-to-all}\nfabric: {kind: pair}\nimpair:\n  - {loss: 5%, way: both}\n"
	s := must.Get(scenarios.Parse("lossy.yaml", []byte(text)))(t)
	plan := must.Get(lab.NewPlan(s, lab.Options{}))(t)
	testbed := must.Get(nslab.Open(plan, nslab.TestbedOptions{UserSpace: true}))(t)
	t.Cleanup(func() {
		if err := testbed.Close(); err != nil {
			t.Error(err)
		}
	})
	must.Do(t, testbed.Begin(time.Now()))
	for i, name := range []string{"host0", "host1"} {
		h := testbed.Fabric.Host(name)
		hosts[i] = &testutil.Host{NS: h.NS}
		hosts[i].V4, hosts[i].V6 = addressesOf(h.Host)
	}
	return hosts
}

func addressesOf(h topology.Host) (v4, v6 netip.Addr) {
	for _, a := range h.NICs[0].Addrs {
		if a.Addr().Is4() {
			v4 = a.Addr()
		} else {
			v6 = a.Addr()
		}
	}
	return v4, v6
}

// On a lossy link reliable operations succeed, and unreliable ones when they are repeated.
// Requests are retried for four seconds, in case a busy machine does not schedule the peer.
func TestDevicesWithoutDefectsPassOnLossyLink(t *testing.T) {
	t.Parallel()
	for provider, patterns := range map[string][]string{
		"softroce":  {"write/*/hand/*/65536", "send-many/ours/hand", "ud-send/*/hand", "uc-send/ours/hand/*/65536", "refused/*/hand", "compare-swap/*/hand"},
		"softiwarp": {"read/*/cm-ours/*/65536"},
	} {
		for _, pattern := range patterns {
			t.Run(provider+"/"+pattern, func(t *testing.T) {
				t.Parallel() // retransmission timeouts dominate
				hosts := lossyPair(t)
				s, cases := withCases(t, &interop.Suite{
					Ours: openEnd(t, hosts[0], provider), Theirs: openEnd(t, hosts[1], provider), Timeout: 2 * time.Minute, AckTimeout: 17, Lossy: true,
				})
				if failed := runMatching(t, s, cases, pattern); len(failed) > 0 {
					t.Error(failed)
				}
			})
		}
	}
}
