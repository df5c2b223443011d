package capture

import (
	"encoding/json"
	"io"
	"strings"
	"time"
)

// jsonPacket is a packet in the output of --json. Fields may be added, not changed.
type jsonPacket struct {
	Number    int          `json:"number"`
	Time      *time.Time   `json:"time,omitempty"`
	Since     float64      `json:"since"` // seconds after the first packet
	Interface string       `json:"interface,omitempty"`
	Direction string       `json:"direction,omitempty"`
	Src       string       `json:"src,omitempty"`
	Dst       string       `json:"dst,omitempty"`
	SrcName   string       `json:"src_name,omitempty"`
	DstName   string       `json:"dst_name,omitempty"`
	SrcPort   uint16       `json:"src_port,omitempty"`
	DstPort   uint16       `json:"dst_port,omitempty"`
	Length    int          `json:"length"`
	Recorded  int          `json:"recorded"`
	Protocol  string       `json:"protocol"`
	Note      string       `json:"note,omitempty"`
	PDUs      []jsonPDU    `json:"pdus,omitempty"`
	Marks     []jsonMark   `json:"marks,omitempty"`
	Headers   []jsonHeader `json:"headers,omitempty"`
	Data      []byte       `json:"data,omitempty"`
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

// printJSON prints a packet as a JSON object.
func (p *Printer) printJSON(s *Stream, pkt *Packet) error {
	out := jsonPacket{
		Number: pkt.Number, Since: pkt.SinceFirst.Seconds(), Interface: pkt.Interface.Name,
		Direction: [...]string{"", "in", "out", ""}[pkt.Direction&3],
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
	for i := range pkt.PDUs {
		out.PDUs = append(out.PDUs, pduJSON(&pkt.PDUs[i]))
	}
	for _, m := range pkt.Marks {
		out.Marks = append(out.Marks, jsonMark{m.Kind.String(), m.Text})
	}
	if p.opts.Verbose {
		for _, h := range pkt.Headers() {
			out.Headers = append(out.Headers, headerJSON(h))
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

// headerJSON converts a header. Keys are the names of fields in lower case, with underscores.
func headerJSON(h Header) jsonHeader {
	fields := make(map[string]any, len(h.Fields))
	for _, f := range h.Fields {
		fields[strings.NewReplacer(" ", "_", "'", "").Replace(strings.ToLower(f.Name))] = f.Value
	}
	return jsonHeader{h.Name, fields}
}

// pduJSON converts a PDU.
func pduJSON(d *PDU) jsonPDU {
	out := jsonPDU{Op: d.Op(), Summary: d.Summary(), Payload: d.PayloadLen()}
	switch {
	case d.RoCE != nil:
		r := d.RoCE
		out.Opcode, out.QP, out.PSN, out.Check = ptr(uint8(r.BTH.Opcode)), &r.BTH.DestQP, ptr(uint32(r.BTH.PSN)), r.ICRC.String()
		if text, ok := r.SyndromeText(); ok {
			out.Syndrome, out.MSN = text, ptr(uint32(r.AETH.MSN))
		}
	case d.FPDU != nil && d.FPDU.HeadersComplete:
		g := &d.FPDU.Segment
		out.Opcode, out.Last = ptr(uint8(g.Control.Opcode)), &g.Control.Last
		if g.Control.Tagged {
			out.STag, out.TO = ptr(uint32(g.Tagged.STag)), &g.Tagged.TO
		} else {
			out.QN, out.MSN, out.MO = ptr(uint32(g.Untagged.QN)), ptr(uint32(g.Untagged.MSN)), &g.Untagged.MO
		}
		out.Check = d.FPDU.CRCStatus.String()
	case d.FPDU != nil:
		out.Check = d.FPDU.CRCStatus.String()
	}
	return out
}

func ptr[T any](v T) *T { return &v }
