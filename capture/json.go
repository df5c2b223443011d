package capture

import (
	"encoding/json"
	"io"
	"strings"
	"time"
)

// jsonPacket is a packet in the output of --json. Fields may be added, not changed.
type jsonPacket struct {
	Number    int        `json:"number"`
	Time      *time.Time `json:"time,omitempty"`
	Since     float64    `json:"since"` // seconds after the first packet
	Interface string     `json:"interface,omitempty"`
	Direction string     `json:"direction,omitempty"`
	jsonEndpoints
	Length   int          `json:"length"`
	Recorded int          `json:"recorded"`
	Protocol string       `json:"protocol"`
	Note     string       `json:"note,omitempty"`
	PDUs     []jsonPDU    `json:"pdus,omitempty"`
	Marks    []jsonMark   `json:"marks,omitempty"`
	Headers  []jsonHeader `json:"headers,omitempty"`
	Data     []byte       `json:"data,omitempty"`
}

// jsonEndpoints are the source and the destination of an IP packet.
type jsonEndpoints struct {
	Src     string `json:"src,omitempty"`
	Dst     string `json:"dst,omitempty"`
	SrcName string `json:"src_name,omitempty"`
	DstName string `json:"dst_name,omitempty"`
	SrcPort uint16 `json:"src_port,omitempty"`
	DstPort uint16 `json:"dst_port,omitempty"`
}

type jsonPDU struct {
	Op      string `json:"op"`
	Summary string `json:"summary"`
	Payload int    `json:"payload"` // octets

	Opcode   *uint8  `json:"opcode,omitempty"`
	QP       *uint32 `json:"qp,omitempty"`
	PSN      *uint32 `json:"psn,omitempty"`
	Syndrome string  `json:"syndrome,omitempty"`
	STag     *uint32 `json:"stag,omitempty"`
	TO       *uint64 `json:"to,omitempty"`
	QN       *uint32 `json:"qn,omitempty"`
	MSN      *uint32 `json:"msn,omitempty"`
	MO       *uint32 `json:"mo,omitempty"`
	Last     *bool   `json:"last,omitempty"`
	Check    string  `json:"check,omitempty"` // ICRC or CRC
}

type jsonMark struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

type jsonHeader struct {
	Name   string         `json:"name"`
	Fields map[string]any `json:"fields"`
}

// jsonKey makes the key of a header field from its name in lower case.
var jsonKey = strings.NewReplacer(" ", "_", "'", "")

// printJSON prints a packet as a JSON object.
func (p *Printer) printJSON(s *Stream, pkt *Packet) error {
	out := jsonPacket{
		Number: pkt.Number, Since: pkt.SinceFirst.Seconds(), Interface: pkt.Interface.Name,
		Direction: [...]string{"", "in", "out", ""}[pkt.Direction&3], // 3 is reserved in pcapng
		Length:    pkt.Length, Recorded: len(pkt.Data), Protocol: pkt.Protocol, Note: pkt.Note,
	}
	if !pkt.Time.IsZero() {
		out.Time = &pkt.Time
	}
	if pkt.IP.Version != 0 {
		src, dst := pkt.Src(), pkt.Dst()
		out.Src, out.SrcPort, out.Dst, out.DstPort = src.Addr().String(), src.Port(), dst.Addr().String(), dst.Port()
		out.SrcName, _ = s.Host(src.Addr())
		out.DstName, _ = s.Host(dst.Addr())
	}
	for _, d := range pkt.PDUs {
		out.PDUs = append(out.PDUs, pduJSON(d))
	}
	for _, m := range pkt.Marks {
		out.Marks = append(out.Marks, jsonMark{m.Kind.String(), m.Text})
	}
	if p.opts.Verbose {
		for _, h := range pkt.Headers() {
			fields := make(map[string]any, len(h.Fields))
			for _, f := range h.Fields {
				fields[jsonKey.Replace(strings.ToLower(f.Name))] = f.Value
			}
			out.Headers = append(out.Headers, jsonHeader{h.Name, fields})
		}
	}
	if p.opts.Hex {
		out.Data = pkt.Data
	}
	return writeJSON(p.w, out)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// pduJSON converts a PDU for JSON, with the opcode, sequence numbers and checksum status of a RoCE
// packet or an FPDU.
func pduJSON(d PDU) jsonPDU {
	out := jsonPDU{Op: d.Op(), Summary: d.Summary(), Payload: d.PayloadLen()}
	switch d := d.(type) {
	case *RoCE:
		out.Opcode, out.QP, out.PSN, out.Check = new(uint8(d.BTH.Opcode)), &d.BTH.DestQP, new(uint32(d.BTH.PSN)), d.ICRC.String()
		if d.hasAETH() {
			out.Syndrome, out.MSN = syndromeText(d.AETH.Syndrome), new(uint32(d.AETH.MSN))
		}
	case *FPDU:
		out.Check = d.CRCStatus.String()
		if !d.HeadersComplete {
			break
		}
		g := &d.Segment
		out.Opcode, out.Last = new(uint8(g.Control.Opcode)), &g.Control.Last
		if g.Control.Tagged {
			out.STag, out.TO = new(uint32(g.Tagged.STag)), &g.Tagged.TO
		} else {
			out.QN, out.MSN, out.MO = new(uint32(g.Untagged.QN)), new(uint32(g.Untagged.MSN)), &g.Untagged.MO
		}
	}
	return out
}
