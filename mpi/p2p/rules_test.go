package p2p

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/rotation"
)

// part picks rules to take out.
var part = rotation.Flag()

var withoutRules = flag.Bool("without", false, "take each rule of the protocols out, and see that the tests notice")

// rules are the places where the protocols could be simpler, were it not for what would
// go wrong then. Each is a text of a file, and what it says without the rule.
var rules = []struct{ rule, file, is, without string }{
	// What speculation is.
	{"a receive that expects much says so", "receive.go", "\tif sendRTR {\n", "\tif sendRTR && false {\n"},
	{"a receive looks before it speaks", "receive.go", "if mayPredict && !e.cfg.NoEarlyProgress {", "if false {"},
	{"a send looks for an RTR first", "speculate.go", "if !e.cfg.NoEarlyProgress && !s.usage.tooFewUsed {", "if false {"},
	{"a send does not look for what does not come", "speculate.go", "!e.cfg.NoEarlyProgress && !s.usage.tooFewUsed", "!e.cfg.NoEarlyProgress"},
	{"an RTR that is there is used", "speculate.go", "if !s.stopped && !s.eagerSent && s.rtrs.len() > 0 {", "if false {"},

	// Whose a word is.
	{"who uses an RTR says so", "speculate.go", "e.sendControl(r.Peer, &wire.Header{Kind: wire.RTRAck,", "_ = (&wire.Header{Kind: wire.RTRAck,"},
	{"who meets an RTS without an RTR says so", "receive.go", "e.cfg.Protocol == Speculative && !r.sentRTR && !recvKnown", "false"},
	{"who has sent an RTR does not", "receive.go", "e.cfg.Protocol == Speculative && !r.sentRTR && !recvKnown", "e.cfg.Protocol == Speculative && !recvKnown"},
	{"a matched probe says so at once", "mprobe.go", "a.recvKnown = true", "return &Message{a}"},
	{"an RTR is for the first RTS that nobody was heard of", "speculate.go", "case s.firstUnmatched != nil:\n\t\ts.removeUnmatched", "case false:\n\t\ts.removeUnmatched"},
	{"an RTSAck tells of a receive", "speculate.go", "\ts.removeUnmatched(r)\n\t// An RTR", "\t// An RTR"},

	// No RTR behind a receive without one.
	{"none behind a receive that has sent none", "predict.go", "(last == nil || last.Value.sentRTR)", "(last == nil || last != nil)"},
	{"none behind a receive with a wildcard", "predict.go", "return !e.posted.HasWildcardMatch(envelope) && ", "return "},
	{"none for any source", "predict.go", "if envelope.Source == match.Any || envelope.Tag == match.Any {", "if envelope.Tag == match.Any {"},
	{"none for any tag", "predict.go", "if envelope.Source == match.Any || envelope.Tag == match.Any {", "if envelope.Source == match.Any {"},

	// Mispredictions.
	{"an eager message makes RTRs doubtful", "speculate.go", "\t\ts.eagerSent = true\n", "\t\ts.eagerSent = false\n"},
	{"it drops those that are there", "speculate.go", "\t\ts.eagerSent = true\n\t\te.dropRTRs(s)\n", "\t\ts.eagerSent = true\n"},
	{"the next RTS stops them", "speculate.go", "return wire.StopRTR", "return 0"},
	{"the receiver stops", "predict.go", "e.receiverState(envelope).rtrStopped = true", "e.receiverState(envelope).rtrStopped = false"},
	{"what it has sent does not count", "predict.go", "n.Value.sentRTR = false", "n.Value.sentRTR = true"},
	{"what comes meanwhile is dropped", "speculate.go", "case s.eagerSent || s.stopped:", "case s.eagerSent && !s.stopped:"},
	{"RTRs are resumed", "speculate.go", "\t\ts.stopped = false\n\t\treturn wire.ResumeRTR", "\t\treturn 0"},
	{"not before the receiver has answered", "speculate.go", "case s.stopped && !s.stopping && !s.usage.tooFewUsed:", "case s.stopped && !s.usage.tooFewUsed:"},
	{"the receiver resumes", "predict.go", "delete(e.receivers, envelope)", "_ = envelope"},
	{"mispredictions have a limit", "predict.go", "s.mispredicted >= e.cfg.MaxMispredicted", "false"},
	{"a rendezvous begins a new count of them", "predict.go", "s.mispredicted = 0", "_ = s"},

	// Adaptation.
	{"RTRs that are of no use stop", "speculate.go", "u.tooFewUsed = true", "u.tooFewUsed = false"},
	{"the share that must be used is the configured one", "speculate.go", "float64(u.used) < e.cfg.Usage*float64(settled)", "u.used == 0"},
	{"RTRs that wait may yet be used", "speculate.go", "settled := u.received - s.rtrs.len()", "settled := u.received"},
	{"useful again, they are resumed", "speculate.go", "\t\t\tu.tooFewUsed = false\n", "\t\t\tu.tooFewUsed = true\n"},
	{"the share that would be used is the same", "speculate.go", "float64(u.wouldUse) >= e.cfg.Usage*float64(u.sends)", "u.wouldUse > 0"},
	{"one that comes too late would not be", "speculate.go", "time.Duration(h.PostedFor) >= e.transport.Now()-r.startedAt", "time.Duration(h.PostedFor) >= 0"},
	{"only what is sent from then on is watched", "speculate.go", "u.sends, u.wouldUse = 0, 0 // from now on", "_ = u"},
	{"only an adaptive engine adapts", "speculate.go", "if !e.cfg.Adaptive {", "if false {"},

	// Cancelling, forgetting, falling back.
	{"the RTR of a cancelled receive is taken back", "speculate.go", "if s.rtrs.remove(h.Recv) {", "if s == nil {"},
	{"a receive is not cancelled before", "receive.go", "\tcase r.sentRTR:\n\t\tr.revokingRTR", "\tcase false:\n\t\tr.revokingRTR"},
	{"what was forgotten is doubtful", "speculate.go", "s = &senderState{eagerSent: e.evicted}", "s = &senderState{}"},
	{"a send that fails has said nothing", "speculate.go", "; err != nil { // before", "; err != nil && false { // before"},
	{"what is forgotten while a send looks is so for it too", "speculate.go", "s = e.senderState(r.envelope()) // what", "// what"},
	{"envelopes whose RTRs are stopped are forgotten too", "speculate.go", "s.rtrs.len() == 0 && !s.stopping", "s.rtrs.len() == 0 && !s.stopped"},
	{"what is used is not sought among all", "rtrqueue.go", "q.first++; q.first == len(q.all)", "q.all = append(q.all[:0:0], q.all[1:]...); len(q.all) == 0"},
	{"a request ends when the fabric has returned its buffer", "request.go", "if r.inTransport {", "if false {"},
	{"a small message without room goes by rendezvous", "send.go", "switch canSend := e.transport.CanSend(r.Peer, n); {", "switch canSend := n >= 0; {"},
}

// Every rule is where the list says. With -without, tests fail without it.
func TestEveryRuleIsNeeded(t *testing.T) {
	for i, r := range rules {
		text, err := os.ReadFile(r.file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), r.is); n != 1 {
			t.Errorf("%s: %s has %q %d times", r.rule, r.file, r.is, n)
			continue
		}
		if *withoutRules && part.Has(i) {
			t.Run(r.rule, func(t *testing.T) { withoutRule(t, r.file, strings.Replace(string(text), r.is, r.without, 1)) })
		}
	}
}

// withoutRule runs the tests of the package with another text of a file.
func withoutRule(t *testing.T, file, text string) {
	dir := t.TempDir()
	other, overlay := filepath.Join(dir, file), filepath.Join(dir, "overlay.json")
	here, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{here: other}})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{other: []byte(text), overlay: replace} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("go", "test", "-overlay="+overlay, "-count=1", "-skip", "TestEveryRuleIsNeeded", "-short", "-timeout=60s", ".").CombinedOutput()
	if err == nil {
		t.Error("no test notices")
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
