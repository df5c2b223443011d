package capture

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	iwarp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// tshark runs tshark and returns its fields, a row per packet.
func tshark(t *testing.T, path string, fields ...string) [][]string {
	t.Helper()
	args := []string{"-r", path, "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,", "-E", "separator=;"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	out, err := exec.Command(tsharkProgram(t), args...).Output()
	if err != nil {
		t.Fatalf("tshark %s: %v", path, err)
	}
	var rows [][]string
	for line := range strings.Lines(string(out)) {
		rows = append(rows, strings.Split(strings.TrimRight(line, "\n"), ";"))
	}
	return rows
}

func tsharkProgram(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	return program
}

// number parses a number in any base.
func number(s string) uint64 {
	v, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return 1<<64 - 1
	}
	return v
}

// joined concatenates all Ethernet captures, to start tshark only once.
func joined(t *testing.T, pattern string) string {
	t.Helper()
	var frames []frame
	for _, path := range captureFiles(t, pattern) {
		forEachPacketOfFile(t, path, func(_ *Stream, p *Packet) {
			if p.Interface.LinkType == LinkEthernet {
				frames = append(frames, frame{data: bytes.Clone(p.Data), length: p.Length})
			}
		})
	}
	path := filepath.Join(t.TempDir(), "joined.pcap")
	must.Do(t, os.WriteFile(path, pcapOf(t, layers.LinkTypeEthernet, frames...), 0o600))
	return path
}

func TestRoCEMatchesTshark(t *testing.T) {
	total := 0
	path := joined(t, roceFiles)
	rows := tshark(t, path, "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.aeth.msn")
	forEachPacketOfFile(t, path, func(_ *Stream, p *Packet) {
		row := rows[p.Number-1]
		if row[0] == "" || len(p.PDUs) == 0 {
			// tshark does not decode short packets.
			if row[0] != "" || len(p.PDUs) != 0 && !p.Has(MarkMalformed) {
				t.Errorf("packet %d: %d PDUs, tshark has opcode %q", p.Number, len(p.PDUs), row[0])
			}
			return
		}
		total++
		h := p.PDUs[0].(*RoCE).BTH
		if uint64(h.Opcode) != number(row[0]) || uint64(h.DestQP) != number(row[1]) || uint64(h.PSN) != number(row[2]) {
			t.Errorf("packet %d: %v to QP %#x PSN %d; tshark has %v", p.Number, h.Opcode, h.DestQP, h.PSN, row)
		}
		if row[3] != "" && uint64(p.PDUs[0].(*RoCE).AETH.MSN) != number(row[3]) {
			t.Errorf("packet %d: MSN %d; tshark has %s", p.Number, p.PDUs[0].(*RoCE).AETH.MSN, row[3])
		}
	})
	if total < 1600 {
		t.Errorf("%d packets were compared", total)
	}
}

func TestIWARPMatchesTshark(t *testing.T) {
	fpdus, starts := 0, 0
	path := joined(t, iwarpFiles)
	rows := tshark(t, path, "iwarp_mpa.ulpdulength", "iwarp_rdma.opcode", "iwarp_ddp.msn", "iwarp_ddp.tagged_offset",
		"iwarp_ddp.stag", "iwarp_mpa.rev", "iwarp_mpa.pdlength", "iwarp_mpa.crc_flag")
	forEachPacketOfFile(t, path, func(_ *Stream, p *Packet) {
		var ours [8][]string
		add := func(column int, v any) { ours[column] = append(ours[column], fmt.Sprint(v)) }
		for _, d := range p.PDUs {
			if m, ok := d.(*MPAStart); ok {
				starts++
				add(5, m.Revision)
				add(6, len(m.PrivateData))
				add(7, map[bool]int{true: 1, false: 0}[m.CRC])
				continue
			}
			fpdus++
			f := d.(*FPDU)
			add(0, f.Length)
			add(1, uint8(f.Segment.Control.Opcode))
			if f.Segment.Control.Tagged {
				add(3, f.Segment.Tagged.TO)
				add(4, uint32(f.Segment.Tagged.STag))
			} else {
				add(2, f.Segment.Untagged.MSN)
			}
		}
		for c := range ours {
			var theirs []string
			for s := range strings.SplitSeq(rows[p.Number-1][c], ",") {
				if s == "True" || s == "False" {
					s = map[string]string{"True": "1", "False": "0"}[s]
				}
				if s != "" {
					theirs = append(theirs, fmt.Sprint(number(s)))
				}
			}
			if strings.Join(ours[c], ",") != strings.Join(theirs, ",") {
				t.Errorf("packet %d: column %d is %v; tshark has %v", p.Number, c, ours[c], theirs)
			}
		}
		if len(p.Marks) > 0 {
			t.Errorf("packet %d between correct kernels is marked: %v", p.Number, p.Marks)
		}
	})
	if fpdus != 354 || starts != 32 {
		t.Errorf("%d FPDUs and %d start-up frames were compared, want 354 and 32", fpdus, starts)
	}
}

// No device capture has MPA markers, so the test generates a stream.
func TestMarkersMatchTshark(t *testing.T) {
	program := tsharkProgram(t)
	path := filepath.Join(t.TempDir(), "markers.pcap")
	frames, sent := connection(iwarp.Framing{Markers: true, CRC: true}, []int{16, 484, 488, 1, 1000, 600, 24}, oneFPDUPerSegment)
	writeFile(t, path, frames)
	out, err := exec.Command(program, "-r", path, "-O", "iwarp_mpa").Output()
	if err != nil {
		t.Fatal(err)
	}
	var lengths, want []string
	for line := range strings.Lines(string(out)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "ULPDU length: "); ok {
			lengths = append(lengths, strings.TrimSuffix(n, " bytes"))
		}
	}
	for _, u := range sent {
		want = append(want, fmt.Sprint(len(u)))
	}
	if strings.Join(lengths, ",") != strings.Join(want, ",") {
		t.Errorf("tshark finds ULPDUs of %v, sent were %v", lengths, want)
	}
	if n := strings.Count(string(out), "(Good CRC32)"); n != len(sent) {
		t.Errorf("tshark finds %d good CRCs, sent were %d", n, len(sent))
	}
	markers := 0
	err = forEachPacket(t, bytes.NewReader(readFile(t, path)), func(_ *Stream, p *Packet) {
		for _, d := range p.PDUs {
			if f, ok := d.(*FPDU); ok {
				markers += f.Markers
				if f.CRCStatus != iwarp.CRCGood || f.MarkerMismatch || fmt.Sprint(f.Length) != want[f.Segment.Untagged.MSN-1] {
					t.Errorf("packet %d: CRC %v, marker mismatch %v, %d octets", p.Number, f.CRCStatus, f.MarkerMismatch, f.Length)
				}
			}
		}
	})
	if n := strings.Count(string(out), "FPDU back pointer"); err != nil || n != markers || n != 6 {
		t.Errorf("tshark finds %d markers, we %d (%v); want 6", n, markers, err)
	}
}
