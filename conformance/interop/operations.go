package interop

import (
	"errors"

	"github.com/fabrictest/fabrictest/verbs"
)

// operation is an operation that cases use.
type operation struct {
	name    string
	service verbs.QPType
	// needs are the capabilities of both sides, serves the additional ones of the
	// responder.
	needs, serves verbs.Caps
	sizes         func(packet int) []int
	untagged      bool // over iWARP: an untagged message
	shared        bool // the responder uses a shared receive queue
	inline        int  // inline data in octets
	run           func(*exchange)
}

const (
	maxInline = 64
	// maxUnreliable is the longest unacknowledged message: it still arrives often enough
	// at a loss of 5 %.
	maxUnreliable = 64 << 10
)

// windowSizes are sizes below and above a packet.
var windowSizes = []int{64, 5000}

// operations are all operations. RC has most, UC and UD some.
var operations = defaultToRC([]operation{
	{name: "send", sizes: boundarySizes, untagged: true, run: send},
	{name: "send-imm", sizes: boundarySizes, untagged: true, run: sendImm},
	{name: "send-inv", needs: verbs.CapSendInv, sizes: fixedSizes(0, 64), untagged: true, run: sendInvalidate},
	{name: "send-inline", sizes: fixedSizes(0, 1, maxInline), untagged: true, inline: maxInline, run: send},
	{name: "send-srq", serves: verbs.CapSRQ, sizes: boundarySizes, untagged: true, shared: true, run: send},
	{name: "send-many", sizes: fixedSizes(1, 5000), untagged: true, run: sendMany},
	{name: "write", sizes: boundarySizes, run: write},
	{name: "write-imm", sizes: boundarySizes, run: writeImm},
	{name: "write-inline", sizes: fixedSizes(0, 1, maxInline), inline: maxInline, run: write},
	{name: "read", sizes: boundarySizes, run: read},
	{name: "read-many", sizes: fixedSizes(1, 5000), run: readMany},
	{name: "compare-swap", needs: verbs.CapAtomics, sizes: fixedSizes(8), run: compareSwap},
	{name: "fetch-add", needs: verbs.CapAtomics, sizes: fixedSizes(8), run: fetchAdd},
	{name: "atomic-write", needs: verbs.CapAtomicWrite, sizes: fixedSizes(8), run: atomicWrite},
	{name: "flush", needs: verbs.CapFlush, sizes: fixedSizes(1, 5000), run: flush},
	{name: "window-1", serves: verbs.CapMWType1, sizes: fixedSizes(windowSizes...), run: windowType1},
	{name: "window-2", serves: verbs.CapMWType2 | verbs.CapLocalInv, sizes: fixedSizes(windowSizes...), run: windowType2},
	{name: "refused", sizes: fixedSizes(64), run: refused},
	{name: "uc-send", service: verbs.QPTypeUC, needs: verbs.CapUC, sizes: upTo(func(int) int { return maxUnreliable }), run: sendUC},
	{name: "uc-write-imm", service: verbs.QPTypeUC, needs: verbs.CapUC, sizes: upTo(func(int) int { return maxUnreliable }), run: writeImmUC},
	{name: "ud-send", service: verbs.QPTypeUD, needs: verbs.CapUD, sizes: upTo(func(packet int) int { return packet }), run: datagram},
})

// defaultToRC sets the service of operations without one to RC.
func defaultToRC(all []operation) []operation {
	for i := range all {
		if op := &all[i]; op.service == 0 {
			op.service, op.needs = verbs.QPTypeRC, op.needs|verbs.CapRC
		}
	}
	return all
}

// sizesOf returns the sizes of an operation. Over iWARP, immediate data is a message
// without payload (RFC 7306).
func (op *operation) sizesOf(transport verbs.Transport, packet int) []int {
	if transport == verbs.TransportIWARP && op.name == "send-imm" {
		return []int{0}
	}
	return op.sizes(packet)
}

func findOperation(name string) (*operation, error) {
	for i := range operations {
		if operations[i].name == name {
			return &operations[i], nil
		}
	}
	return nil, errors.New("no operation " + name)
}
