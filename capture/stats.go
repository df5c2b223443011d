package capture

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// maxStatsFlows bounds the flows with separate counters.
const maxStatsFlows = 10000

// topFlows is the number of flows in the table.
const topFlows = 20

// counters are the counters of a flow or an operation.
type counters struct {
	Name    string `json:"name"`
	Packets int    `json:"packets"`
	Bytes   int64  `json:"bytes"`   // on the wire
	Payload int64  `json:"payload"` // application data

	Retransmissions int `json:"retransmissions,omitempty"`
	Gaps            int `json:"gaps,omitempty"`
	Naks            int `json:"naks,omitempty"`

	first, last time.Time
}

// add counts a packet with payload bytes of application data.
func (t *counters) add(pkt *Packet, payload int) {
	t.Packets++
	t.Bytes += int64(pkt.Length)
	t.Payload += int64(payload)
	if pkt.Time.IsZero() {
		return
	}
	if t.first.IsZero() || pkt.Time.Before(t.first) {
		t.first = pkt.Time
	}
	if pkt.Time.After(t.last) {
		t.last = pkt.Time
	}
}

// rate formats the payload rate in bits per second; "-" if the duration or the payload is 0.
func (t *counters) rate() string {
	if d := t.last.Sub(t.first).Seconds(); d > 0 && t.Payload > 0 {
		return cli.BitRate(float64(t.Payload) * 8 / d)
	}
	return "-"
}

type stats struct {
	total         counters
	ops           map[string]*counters
	flows         map[statsFlow]*counters // of the current capture
	namedFlows    map[string]*counters    // of finished captures
	otherFlows    counters
	maxInterfaces int // over all captures
	marks         map[MarkKind]int
	naks          map[string]int // count by mark text
}

// add counts a packet: in total, for its flow and for its operations, and its marks.
func (st *stats) add(s *Stream, pkt *Packet) {
	const maxNakTexts = 1000 // different texts that are counted
	payload := 0
	for _, d := range pkt.PDUs {
		payload += d.PayloadLen()
	}
	st.total.add(pkt, payload)
	flow := st.flow(s, pkt)
	flow.add(pkt, payload)
	for _, m := range pkt.Marks {
		st.marks[m.Kind]++
		switch m.Kind {
		case MarkRetransmission:
			flow.Retransmissions++
		case MarkGap:
			flow.Gaps++
		case MarkNak, MarkRNR, MarkRejected:
			flow.Naks++
			if len(st.naks) < maxNakTexts || st.naks[m.Text] > 0 {
				st.naks[m.Text]++
			}
		}
	}
	if len(pkt.PDUs) == 0 {
		countersOf(st.ops, pkt.Protocol).add(pkt, 0) // no payload
	}
	for _, d := range pkt.PDUs { // a TCP segment counts for each of its PDUs
		countersOf(st.ops, d.Op()).add(pkt, d.PayloadLen())
	}
}

// countersOf returns the counters of this name. It adds them if there are none.
func countersOf(m map[string]*counters, name string) *counters {
	t := m[name]
	if t == nil {
		t = &counters{Name: name}
		m[name] = t
	}
	return t
}

// statsFlow identifies the packets to a queue pair, or a direction of a TCP connection.
type statsFlow struct {
	iface     int
	endpoints endpoints
	protocol  string // if neither RoCE nor TCP
	qp        uint32
	roce      bool
}

// flow returns the counters of a packet's flow, or otherFlows for a new flow if there are too many.
// It also notes the number of interfaces of the capture so far.
func (st *stats) flow(s *Stream, pkt *Packet) *counters {
	key := statsFlow{iface: pkt.Interface.Index, endpoints: endpointsOf(pkt)}
	if len(pkt.PDUs) > 0 {
		if r, ok := pkt.PDUs[0].(*RoCE); ok {
			key.roce, key.qp = true, r.BTH.DestQP
		}
	}
	if !key.roce && !pkt.TCP.Present {
		key.protocol = pkt.Protocol
	}
	st.maxInterfaces = max(st.maxInterfaces, len(s.interfaces))
	t := st.flows[key]
	if t == nil {
		if len(st.flows)+len(st.namedFlows) >= maxStatsFlows {
			return &st.otherFlows
		}
		t = new(counters)
		st.flows[key] = t
	}
	return t
}

// nameFlows moves the flows of a finished capture to namedFlows, with the host names known by then.
func (st *stats) nameFlows(s *Stream) {
	severalInterfaces := len(s.interfaces) > 1
	for key, t := range st.flows {
		name := key.endpoints.format(s)
		switch {
		case key.roce:
			name += fmt.Sprintf(" QP %#x", key.qp)
		case key.protocol != "":
			name += " " + key.protocol
		default:
			name += " TCP"
		}
		if severalInterfaces && key.iface < len(s.interfaces) {
			name = interfaceName(s.interfaces[key.iface]) + ": " + name
		}
		countersOf(st.namedFlows, name).merge(t)
	}
	clear(st.flows)
}

// merge adds the counters of another flow.
func (t *counters) merge(other *counters) {
	t.Packets, t.Bytes, t.Payload = t.Packets+other.Packets, t.Bytes+other.Bytes, t.Payload+other.Payload
	t.Retransmissions, t.Gaps, t.Naks = t.Retransmissions+other.Retransmissions, t.Gaps+other.Gaps, t.Naks+other.Naks
	if t.first.IsZero() || !other.first.IsZero() && other.first.Before(t.first) {
		t.first = other.first
	}
	if other.last.After(t.last) {
		t.last = other.last
	}
}

// sorted returns the counters, those with most packets first.
func sorted(m map[string]*counters) []*counters {
	return slices.SortedFunc(maps.Values(m), func(a, b *counters) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Name, b.Name))
	})
}

// text prints the statistics as tables.
func (st *stats) text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight|tabwriter.TabIndent)
	d := st.total.last.Sub(st.total.first)
	fmt.Fprintf(t, "\n%d packets, %s on the wire, %s payload", st.total.Packets, cli.Bytes(st.total.Bytes), cli.Bytes(st.total.Payload))
	switch {
	case st.maxInterfaces > 1:
		fmt.Fprintf(t, ", in %v\nRecorded at %d interfaces: what passed two counts twice.", d, st.maxInterfaces)
	case d > 0:
		fmt.Fprintf(t, ", in %v: %.0f packets/s, %s", d, float64(st.total.Packets)/d.Seconds(), st.total.rate())
	}
	fmt.Fprint(t, "\n\npackets\tbytes\tpayload\t  message\n")
	for _, o := range sorted(st.ops) {
		fmt.Fprintf(t, "%d\t%d\t%d\t  %s\n", o.Packets, o.Bytes, o.Payload, o.Name)
	}
	fmt.Fprint(t, "\npackets\tpayload\trate\tresent\tgaps\tnaks\t  flow\n")
	flows := sorted(st.namedFlows)
	for _, f := range flows[:min(len(flows), topFlows)] {
		fmt.Fprintf(t, "%d\t%d\t%s\t%d\t%d\t%d\t  %s\n", f.Packets, f.Payload, f.rate(), f.Retransmissions, f.Gaps, f.Naks, f.Name)
	}
	if n := len(flows) - topFlows; n > 0 {
		fmt.Fprintf(t, "and %d flows more (--json has all)\n", n)
	}
	if st.otherFlows.Packets > 0 {
		fmt.Fprintf(t, "and %d packets of flows beyond %d\n", st.otherFlows.Packets, maxStatsFlows)
	}
	st.writeMarks(t)
	return t.Flush()
}

// writeMarks prints how many packets were marked as unusual, by kind of mark, and the number of
// NAKs and rejects by text.
func (st *stats) writeMarks(w io.Writer) {
	if len(st.marks) == 0 {
		fmt.Fprint(w, "\nNothing was marked.\n")
		return
	}
	fmt.Fprint(w, "\nmarked\t  as\n")
	for k := range NumMarkKinds {
		if n := st.marks[k]; n > 0 {
			fmt.Fprintf(w, "%d\t  %v\n", n, k)
		}
	}
	if len(st.naks) == 0 {
		return
	}
	fmt.Fprint(w, "\ntimes\t  complaint\n")
	frequentFirst := func(a, b string) int { return cmp.Or(cmp.Compare(st.naks[b], st.naks[a]), cmp.Compare(a, b)) }
	for _, t := range slices.SortedFunc(maps.Keys(st.naks), frequentFirst) {
		fmt.Fprintf(w, "%d\t  %s\n", st.naks[t], cli.PrintableLine(t))
	}
}

// json prints the statistics as a JSON object.
func (st *stats) json(w io.Writer) error {
	marks := map[string]int{}
	for k, n := range st.marks {
		marks[k.String()] = n
	}
	type summary struct {
		counters
		Seconds    float64        `json:"seconds"`
		Messages   []*counters    `json:"messages"`
		Flows      []*counters    `json:"flows"`
		Others     int            `json:"packets_of_other_flows,omitempty"`
		Marks      map[string]int `json:"marks"`
		Complaints map[string]int `json:"complaints"`
	}
	return writeJSON(w, map[string]summary{"stats": {
		st.total, st.total.last.Sub(st.total.first).Seconds(), sorted(st.ops), sorted(st.namedFlows), st.otherFlows.Packets, marks, st.naks,
	}})
}
