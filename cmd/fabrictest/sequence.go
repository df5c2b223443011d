package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/capture"
	"github.com/fabrictest/fabrictest/lab/mpihost"
)

// laneWidth is the distance of the lanes of a sequence diagram.
const laneWidth = 26

// sequence prints a sequence diagram: a lane for each host, with an arrow for each packet that
// arrives, and the choices that are not the default.
type sequence struct {
	out   io.Writer
	lanes map[string]int // by host
	names []string
	sent  map[string]int // lane of the sender, by bytes of the packet
	marks []mpihost.Mark
	start time.Time
}

// writeSequence prints the sequence diagram of a repeated run, from its capture.
func writeSequence(out io.Writer, file string, r *mpihost.Explored) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	in, err := capture.Open(f)
	if err != nil {
		return err
	}
	s := &sequence{out: out, lanes: map[string]int{}, sent: map[string]int{}, marks: r.Marks, start: time.Unix(0, 0)}
	if s.names, err = hostsOf(file); err != nil {
		return err
	}
	for i, n := range s.names {
		s.lanes[n] = i
	}
	s.header()
	for {
		p, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		s.packet(p)
	}
	s.marksUntil(1 << 62)
	if r.Failure != nil {
		first, _, _ := strings.Cut(r.Failure.Error, "\n")
		fmt.Fprintf(out, "%12s  ==> FAILED: %s\n", "", first)
	}
	return nil
}

// hostsOf returns the names of the interfaces of a capture that have packets, in the order of the
// file.
func hostsOf(file string) (names []string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in, err := capture.Open(f)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for {
		p, err := in.Next()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		if name := p.Interface.Name; !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
}

func (s *sequence) header() {
	line := fmt.Sprintf("%12s ", "")
	for _, n := range s.names {
		line += fmt.Sprintf("%-*s", laneWidth, n)
	}
	fmt.Fprintln(s.out, strings.TrimRight(line, " "))
}

// packet prints an arrow when a packet arrives, from the lane of its sender.
func (s *sequence) packet(p *capture.Packet) {
	to := s.lanes[p.Interface.Name]
	if p.Direction != capture.Inbound {
		s.sent[string(p.Data)] = to
		return
	}
	s.marksUntil(p.Time.Sub(s.start))
	from, known := s.sent[string(p.Data)]
	if !known { // it was changed on the path
		from = to
	}
	label := p.Note
	if len(p.PDUs) > 0 {
		label = p.PDUs[0].Op()
		if n := p.PDUs[0].PayloadLen(); n > 0 {
			label += fmt.Sprintf(" %d", n)
		}
	}
	fmt.Fprintf(s.out, "%12v %s\n", p.Time.Sub(s.start), arrow(from, to, len(s.names), label))
}

// arrow is a line with the lanes, and an arrow with a label between two of them.
func arrow(from, to, lanes int, label string) string {
	line := []rune(strings.Repeat(" ", laneWidth*(lanes-1)+1))
	for i := range lanes {
		line[i*laneWidth] = '|'
	}
	left, right := min(from, to)*laneWidth, max(from, to)*laneWidth
	if left == right {
		return strings.TrimRight(string(line), " ") + " " + label
	}
	for i := left + 1; i < right; i++ {
		line[i] = '-'
	}
	if to > from {
		line[right-1] = '>'
	} else {
		line[left+1] = '<'
	}
	text := []rune(" " + label + " ")
	if room := right - left - 6; len(text) > room {
		text = text[:room]
	}
	copy(line[left+(right-left-len(text))/2:], text)
	return string(line)
}

// marksUntil prints the choices up to a virtual time.
func (s *sequence) marksUntil(t time.Duration) {
	for len(s.marks) > 0 && s.marks[0].At <= t {
		m := s.marks[0]
		s.marks = s.marks[1:]
		fmt.Fprintf(s.out, "%12v  ==> choice %d: %v\n", m.At, m.Step, m.Choice)
	}
}
