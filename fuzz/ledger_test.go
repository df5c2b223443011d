package fuzz_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/verbs"
)

// ledger has the requests that were posted to one queue, and which of them completed.
type ledger struct {
	name string
	// ordered says that requests complete in the order of posting. Those of a shared receive queue,
	// and of several senders, need not.
	ordered bool
	posted  []entry
	first   uint64 // ID of posted[0]
}

type entry struct {
	signaled  bool
	completed bool // by its own completion, or by that of a later request
	excused   bool // its queue was reset or closed: a completion is not required
}

// add records a request and returns its ID.
func (l *ledger) add(signaled bool) uint64 {
	l.posted = append(l.posted, entry{signaled: signaled})
	return l.first + uint64(len(l.posted)-1)
}

// nextID is the ID that add will return.
func (l *ledger) nextID() uint64 { return l.first + uint64(len(l.posted)) }

// complete records a completion. It returns an error if the completion is wrong.
func (l *ledger) complete(wc *verbs.WC) error {
	i := int(wc.WRID - l.first)
	if i >= len(l.posted) {
		return fmt.Errorf("%s: completion of request %d, but only %d were posted: %+v", l.name, i, len(l.posted), *wc)
	}
	e := &l.posted[i]
	switch {
	case e.completed:
		return fmt.Errorf("%s: request %d completes twice: %+v", l.name, i, *wc)
	case !e.signaled && wc.Status == verbs.WCSuccess:
		return fmt.Errorf("%s: request %d is unsignaled, but has a completion: %+v", l.name, i, *wc)
	}
	e.completed = true
	for k := range l.posted[:i] {
		if before := &l.posted[k]; l.ordered && !before.completed {
			if before.signaled && !before.excused {
				return fmt.Errorf("%s: request %d completes before request %d: %+v", l.name, i, k, *wc)
			}
			before.completed = true
		}
	}
	return nil
}

// checkCompleted returns an error if a signaled request has no completion.
func (l *ledger) checkCompleted() error {
	for i, e := range l.posted {
		if e.signaled && !e.completed && !e.excused {
			return fmt.Errorf("%s: request %d of %d has no completion", l.name, i, len(l.posted))
		}
	}
	return nil
}

// ledgers are the ledgers of a device. The high bits of a request's ID are the index of its ledger.
type ledgers struct{ all []*ledger }

const ledgerBits = 16

func (b *ledgers) open(name string, ordered bool) *ledger {
	l := &ledger{name: name, ordered: ordered, first: uint64(len(b.all)) << ledgerBits}
	b.all = append(b.all, l)
	return l
}

func (b *ledgers) complete(wc *verbs.WC) error {
	i := wc.WRID >> ledgerBits
	if i >= uint64(len(b.all)) {
		return fmt.Errorf("completion of a request that was not posted: %+v", *wc)
	}
	return b.all[i].complete(wc)
}

// captured calls f with the IP payload and protocol of each packet in captures of Linux drivers.
func captured(t testing.TB, pattern string, f func(file string, protocol uint8, payload []byte)) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures at %s: %v", pattern, err)
	}
	for _, name := range files {
		for _, c := range testutil.ReadCaptureFile(t, name) {
			b, ok := c.IP()
			if !ok {
				continue
			}
			if h, payload, _, err := packet.ParseIP(b); err == nil {
				f(name, *h.Protocol, payload)
			}
		}
	}
}

// capturedStreams adds programs in which the attacker sends one side of captured iWARP connections.
func capturedStreams(t testing.TB, add func([]byte)) {
	sides := map[string][]byte{}
	captured(t, "../emu/iwarp/wire/testdata/*.pcap", func(file string, protocol uint8, b []byte) {
		if protocol != packet.ProtocolTCP || len(b) < 20 || len(b) <= int(b[12]>>4)*4 {
			return
		}
		side := file + string(b[:2])
		if sides[side] == nil {
			sides[side] = []byte{byte(len(sides) & 1)}
		}
		for data := b[int(b[12]>>4)*4:]; len(data) > 0; {
			n := min(len(data), 255)
			sides[side] = append(append(sides[side], writeBytes, byte(n)), data[:n]...)
			data = data[n:]
		}
	})
	for _, side := range slices.Sorted(maps.Keys(sides)) {
		add(sides[side][:min(len(sides[side]), maxProgram)])
	}
}

// capturedPackets adds programs in which the attacker injects captured RoCE packets.
func capturedPackets(t testing.TB, add func([]byte)) {
	seen := map[byte]int{} // by opcode
	captured(t, "../emu/softroce/wire/testdata/rxe*.pcap", func(_ string, protocol uint8, b []byte) {
		if protocol != packet.ProtocolUDP || len(b) < 8+16 || len(b) > 8+600 {
			return
		}
		b = b[8:]
		if seen[b[0]]++; seen[b[0]] > 3 {
			return
		}
		seed := append([]byte{4, 3, 0, 3, 6, pathInject, byte(len(b) >> 8), byte(len(b))}, b...)
		add(seed)
	})
}

// FuzzVerbs: any sequence of verbs on every device returns what the model of verbs requires. Queue
// pairs are in the expected states, requests complete once, the device writes only where it may,
// and in the end all objects can be closed.
func FuzzVerbs(f *testing.F) {
	for seed := range uint64(48) {
		f.Add(randomBytes(seed, 1<<15))
	}
	f.Fuzz(rapid.MakeFuzz(verbsSequence))
}

func TestVerbsMatchModel(t *testing.T) {
	for i, k := range kinds {
		name := k.name
		if len(k.setup.Options) != 0 {
			name += ", reliable"
		}
		t.Run(name, func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { sequenceOn(t, i) }) })
	}
}

func verbsSequence(t *rapid.T) {
	sequenceOn(t, rapid.IntRange(0, len(kinds)-1).Draw(t, "device"))
}

func sequenceOn(t *rapid.T, kind int) {
	m, err := newMachine(kind)
	if err != nil {
		t.Fatal(err)
	}
	for range rapid.IntRange(0, 2).Draw(t, "ready QPs") {
		m.createReadyQPs(t)
	}
	t.Repeat(map[string]func(*rapid.T){
		"alloc PD": m.allocPD, "close PD": m.closePD,
		"reg MR": m.regMR, "close MR": m.closeMR,
		"alloc MW": m.allocMW, "close MW": m.closeMW, "bind MW": m.bindMW,
		"create AH": m.createAH, "close AH": m.closeAH,
		"create channel": m.createChannel, "close channel": m.closeChannel, "wait event": m.waitEvent,
		"create CQ": m.createCQ, "close CQ": m.closeCQ, "arm": m.armCQ, "resize CQ": m.resizeCQ, "poll": m.pollCQ, "poll more": m.pollCQ,
		"open XRCD": m.openXRCD, "close XRCD": m.closeXRCD,
		"create SRQ": m.createSRQ, "close SRQ": m.closeSRQ, "modify SRQ": m.modifySRQ, "post SRQ": m.postSRQ,
		"create QP": m.createQP, "close QP": m.closeQP, "rise": m.riseQP, "rise more": m.riseQP, "lower": m.lowerQP, "modify QP": m.modifyQP,
		"post recv": m.postRecv, "post recv more": m.postRecv, "multicast": m.multicast,
		"post send": m.postSend, "post send more": m.postSend, "post send yet more": m.postSend, "post send again": m.postSend,
		"async": m.waitAsync, "pass": m.pass, "pass more": m.pass,
	})
	m.finish(t)
}
