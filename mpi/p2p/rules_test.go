package p2p

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

// part selects the rules or programs of this run.
var part = testutil.PartFlag()

var withoutRules = flag.Bool("without", false, "remove each rule of the protocols, and check that a test fails")

// rules are conditions of the protocols that look removable. Each entry names a piece of
// code and its replacement without the rule.
var rules = []struct{ rule, file, is, without string }{
	// Speculation.
	{"a receive that predicts rendezvous sends an RTR", "receive.go", "\tcase sendRTR:\n", "\tcase sendRTR && false:\n"},
	{"a receive makes progress before it sends an RTR", "receive.go", "if speculative && !e.cfg.NoEarlyProgress {", "if false {"},
	{"a send makes progress first", "speculate.go", "if !e.cfg.NoEarlyProgress && !s.usage.tooFewRTRsUsed {", "if false {"},
	{"a send makes no early progress while RTRs are stopped", "speculate.go", "!e.cfg.NoEarlyProgress && !s.usage.tooFewRTRsUsed", "!e.cfg.NoEarlyProgress"},
	{"a queued RTR is used", "speculate.go", "if !s.stopped && !s.eagerSent && s.rtrs.len() > 0 {", "if false {"},

	// Assignment of control messages to requests.
	{"a sender acknowledges the RTR that it uses", "speculate.go", "e.sendControl(r.Peer, &wire.Header{Kind: wire.RTRAck,", "_ = (&wire.Header{Kind: wire.RTRAck,"},
	{"a receiver without an RTR acknowledges an RTS", "receive.go", "e.cfg.Protocol == Speculative && !r.sentRTR && !rtsAcked && r.doneFlags == 0", "false"},
	{"a receiver with an RTR does not", "receive.go", "e.cfg.Protocol == Speculative && !r.sentRTR && !rtsAcked", "e.cfg.Protocol == Speculative && !rtsAcked"},
	{"nor a receiver whose sender takes no RTR", "receive.go", "!rtsAcked && r.doneFlags == 0", "!rtsAcked"},
	{"Improbe acknowledges an RTS at once", "receive.go", "msg.rtsAcked = true", "return &Message{msg}"},
	{"an RTR belongs to the first unmatched RTS", "speculate.go", "case s.firstUnmatched != nil:\n\t\ts.removeUnmatched", "case false:\n\t\ts.removeUnmatched"},
	{"an RTSAck matches its send", "speculate.go", "\ts.removeUnmatched(r)\n\te.countSend", "\te.countSend"},

	// No RTR after a posted receive without one.
	{"none after a receive that has sent none", "predict.go", "(last == nil || last.Value.sentRTR)", "(last == nil || last != nil)"},
	{"none after a receive with a wildcard", "predict.go", "return !e.posted.HasWildcardMatch(envelope) && ", "return "},
	{"none for any source", "predict.go", "if envelope.Source == Any || envelope.Tag == Any {", "if envelope.Tag == Any {"},
	{"none for any tag", "predict.go", "if envelope.Source == Any || envelope.Tag == Any {", "if envelope.Source == Any {"},

	// Mispredictions.
	{"an eager message invalidates RTRs", "speculate.go", "\t\ts.eagerSent = true\n", "\t\ts.eagerSent = false\n"},
	{"it drops queued RTRs", "speculate.go", "\t\ts.eagerSent = true\n\t\te.dropRTRs(s)\n", "\t\ts.eagerSent = true\n"},
	{"the next RTS stops them", "speculate.go", "return wire.StopRTR", "return 0"},
	{"the receiver stops sending RTRs", "predict.go", "e.receiverState(envelope).rtrStopped = true", "e.receiverState(envelope).rtrStopped = false"},
	{"its outstanding RTRs are ignored", "predict.go", "n.Value.sentRTR = false", "n.Value.sentRTR = true"},
	{"RTRs that arrive meanwhile are dropped", "speculate.go", "case s.eagerSent || s.stopped:", "case s.eagerSent && !s.stopped:"},
	{"RTRs are resumed", "speculate.go", "\t\ts.stopped = false\n\t\treturn wire.ResumeRTR", "\t\treturn 0"},
	{"not before the receiver has acknowledged the stop", "speculate.go", "case s.stopped && !s.stopUnconfirmed && ", "case s.stopped && "},
	{"not before Done for all sends without RTSAck", "speculate.go", " && s.withoutRTSAck == 0:", ":"},
	{"the receiver resumes", "predict.go", "delete(e.receiverStates, envelope)", "_ = envelope"},
	{"mispredictions have a limit", "predict.go", "s.mispredicted >= e.cfg.MaxMispredicted", "false"},
	{"a rendezvous resets their count", "predict.go", "s.mispredicted = 0", "_ = s"},

	// Advertised requests.
	{"an advertised send waits for the RTR", "send.go", "if e.needsAdvertisement(r) {", "if false {"},
	{"an RTR that arrives first is kept", "advertise.go", "e.advertised.Add(&e.allocUnexpected(peer, h, nil).Node)", "_ = n"},
	{"an RTR is used once", "advertise.go", "\trtr := n.Value.header\n\te.removeAdvertisement(n)\n", "\trtr := n.Value.header\n"},
	{"without memory the receive has no room", "advertise.go", "if r.Err = e.register(r, len(r.Buf)); r.Err == nil {", "if _ = e.register(r, len(r.Buf)); r.region != nil {"},
	{"a used RTR is not revoked", "advertise.go", "if n.Value.header.Recv == h.Recv {", "if n.Value.header.Recv != h.Recv {"},
	{"sends of a failed context stop waiting", "advertise.go", "r.state == stateAwaitingRTR && r.Context == context", "false"},
	{"later ones do not wait", "advertise.go", "if err := e.failedContexts[r.Context]; err != nil {", "if err := e.failedContexts[r.Context]; false {"},
	{"small advertised messages say nothing of RTRs", "send.go", "e.cfg.Protocol == Speculative && !r.Advertised", "e.cfg.Protocol == Speculative"},

	// Adaptation.
	{"unused RTRs stop", "speculate.go", "u.tooFewRTRsUsed = true", "u.tooFewRTRsUsed = false"},
	{"the required fraction is the configured one", "speculate.go", "float64(u.used) < e.cfg.Usage*float64(decided)", "u.used == 0"},
	{"queued RTRs may still be used", "speculate.go", "decided := u.received - s.rtrs.len()", "decided := u.received"},
	{"RTRs resume when enough would be used", "speculate.go", "\t\t\tu.tooFewRTRsUsed = false\n", "\t\t\tu.tooFewRTRsUsed = true\n"},
	{"the fraction to resume is the same", "speculate.go", "float64(u.wouldHaveUsedRTR) >= e.cfg.Usage*float64(u.sends)", "u.wouldHaveUsedRTR > 0"},
	{"an RTR that would be late does not count", "speculate.go", "time.Duration(h.PostedFor) >= e.transport.Now()-r.startedAt", "time.Duration(h.PostedFor) >= 0"},
	{"sends without RTSAck count by their Done", "speculate.go", "\t\ts.withoutRTSAck--\n\t\te.countSend(r, s, h)\n", "\t\ts.withoutRTSAck--\n"},
	{"a Done says how long the receive was posted", "receive.go", "PostedFor: uint64(e.transport.Now() - r.startedAt)", "PostedFor: 0"},
	{"only later sends count", "speculate.go", "u.sends, u.wouldHaveUsedRTR = 0, 0 // count from now on", "_ = u"},
	{"only an adaptive engine adapts", "speculate.go", "if !e.cfg.Adaptive {", "if false {"},

	// Cancellation, eviction, fallback.
	{"the RTR of a cancelled receive is removed", "speculate.go", "if s.rtrs.remove(h.Recv) {", "if s == nil {"},
	{"a receive is not cancelled before its RTR is revoked", "receive.go", "\tcase r.sentRTR:\n\t\tr.revokingRTR", "\tcase false:\n\t\tr.revokingRTR"},
	{"evicted state is treated as if an eager message was sent", "speculate.go", "s = &senderState{eagerSent: e.evicted}", "s = &senderState{}"},
	{"a send that fails sends nothing", "speculate.go", "; err != nil { // before", "; err != nil && false { // before"},
	{"a send notices that its state was evicted", "speculate.go", "s = e.senderState(r.envelope()) // an", "// an"},
	{"state with stopped RTRs is evicted too", "speculate.go", "&& !s.stopUnconfirmed && s.withoutRTSAck == 0\n", "&& !s.stopped\n"},
	{"pop takes constant time", "speculate.go", "q.first++; q.first == len(q.all)", "q.all = append(q.all[:0:0], q.all[1:]...); len(q.all) == 0"},
	{"a request completes when the transport has returned its buffer", "request.go", "if r.inTransport {", "if false {"},
	{"a small message without credit uses rendezvous", "send.go", "switch canSend := e.transport.CanSend(r.Peer, n); {", "switch canSend := n >= 0; {"},
}

// Every rule is found in its file. With -without, some test fails when it is removed.
func TestEveryRuleIsNeeded(t *testing.T) {
	for i, r := range rules {
		text := must.Get(os.ReadFile(r.file))(t)
		if n := strings.Count(string(text), r.is); n != 1 {
			t.Errorf("%s: %s has %q %d times", r.rule, r.file, r.is, n)
			continue
		}
		if *withoutRules && part.Has(i) {
			t.Run(r.rule, func(t *testing.T) { runWithoutRule(t, r.file, strings.Replace(string(text), r.is, r.without, 1)) })
		}
	}
}

// runWithoutRule runs the tests of the package with a file replaced.
func runWithoutRule(t *testing.T, file, text string) {
	dir := t.TempDir()
	other, overlay := filepath.Join(dir, file), filepath.Join(dir, "overlay.json")
	here := must.Get(filepath.Abs(file))(t)
	replace := must.Get(json.Marshal(map[string]any{"Replace": map[string]string{here: other}}))(t)
	for name, b := range map[string][]byte{other: []byte(text), overlay: replace} {
		must.Do(t, os.WriteFile(name, b, 0o600))
	}
	out, err := exec.Command("go", "test", "-overlay="+overlay, "-count=1", "-failfast", "-skip", "TestEveryRuleIsNeeded", "-short", "-timeout=60s", ".").CombinedOutput()
	if err == nil {
		t.Error("no test fails")
		return
	}
	failed := 0
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			t.Log(strings.Fields(name)[0])
			failed++
		}
	}
	if failed == 0 && !strings.Contains(string(out), "panic: ") {
		t.Errorf("%v, though no test fails:\n%s", err, out)
	}
}
