package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// options are those of `fabrictest run`.
type options struct {
	seed     uint64
	messages int
	patterns []string
	pcap     string
	json     bool
	list     bool
	snapLen  int
	// cutAsNeeded chooses a snap length by what there is to capture.
	cutAsNeeded bool
	quirks      []string
	flaws       flaws
	program     string // how we were called
}

const (
	maxMessages  = 100_000
	minSnapLen   = 60  // IPv6, UDP, BTH
	usualSnapLen = 128 // and every other header
	madSnapLen   = 328 // IPv6, UDP, BTH, DETH, MAD, ICRC
)

func newRunCommand(program string) *cobra.Command {
	o := &options{program: program}
	cmd := &cobra.Command{
		Use:   "run [PATTERN...]",
		Short: "Run checked traffic over emulated fabrics, clean and impaired",
		Long: `Run checked traffic over emulated fabrics, clean and impaired.

Hosts with soft-RoCE NICs are brought up in a simulated world, where time is
virtual. They exchange messages of every service, and every byte is checked:
reliable services must deliver everything exactly once and in order whatever the
network does, unreliable ones may lose messages but never damage one.

PATTERN selects scenarios, service/network, with * for any part; a service or a
network alone stands for all of its scenarios. See --list.

A capture of one scenario has whole packets: at 400 messages some 10 MiB, incasts
up to 200 MiB. One of several has every header, but of data only what is in the
first 128 bytes (328 where connections are managed): 50 MiB for all scenarios, and
700 MiB with --snaplen 0. Wireshark reads the headers of packets that were cut, and
calls them malformed in its Info column.

Exit codes: 0 everything held, 1 something did not, 2 called wrongly.`,
		Example: `  fabrictest run
  fabrictest run --seed 7                        the same run again, byte for byte
  fabrictest run rc 'u[cd]/loss' --messages 1000
  fabrictest run --pcap out/                     a capture of each scenario, for Wireshark
  fabrictest run rc/loss --quirk AckSkipsRead    a flawed NIC, and how it is found out
  fabrictest run rc-cm --quirk cm.LeakTimeWait   a flawed connection manager
  fabrictest run --json | jq '.rows[] | select(.ok|not)'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.patterns = args
			if !cmd.Flags().Changed("seed") {
				o.seed = randomSeed()
			}
			o.cutAsNeeded = !cmd.Flags().Changed("snaplen")
			return o.run(cmd)
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&o.seed, "seed", 0, "decides everything that happens (default: random, and printed)")
	f.IntVar(&o.messages, "messages", 400, "messages that each end of a connection sends")
	f.StringVar(&o.pcap, "pcap", "", "write a pcapng `FILE` of all packets, or one file a scenario into DIR/")
	f.IntVar(&o.snapLen, "snaplen", 0, "how many bytes of a packet --pcap keeps, 0 for all (default: see above)")
	f.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	f.BoolVar(&o.list, "list", false, "print the scenarios' names and run none")
	f.StringArrayVar(&o.quirks, "quirk", nil, "give every NIC the flaw `NAME` (see 'fabrictest quirks'); may be repeated")
	return cmd
}

// randomSeed draws a seed short enough to be typed.
func randomSeed() uint64 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return uint64(binary.LittleEndian.Uint32(b[:]))
}

// check refuses what makes no sense and finds the scenarios.
func (o *options) check() ([]scenario, error) {
	if o.messages < 1 || o.messages > maxMessages {
		return nil, usagef("--messages %d: give a number in 1..%d", o.messages, maxMessages)
	}
	if o.snapLen < 0 || o.snapLen > 0 && o.snapLen < minSnapLen {
		return nil, usagef("--snaplen %d: give 0 for whole packets, or at least %d for their headers", o.snapLen, minSnapLen)
	}
	for _, spec := range o.quirks {
		if err := o.flaws.set(spec); err != nil {
			return nil, err
		}
	}
	chosen, err := choose(scenarios(), o.patterns)
	if o.cutAsNeeded && len(chosen) > 1 {
		o.snapLen = usualSnapLen
	}
	return chosen, err
}

// command is the command line that repeats this run, or one scenario of it.
func (o *options) command(only ...string) string {
	words := []string{o.program + " run"}
	for _, p := range append(only, o.patterns...) {
		words = append(words, quote(p))
		if len(only) > 0 {
			break
		}
	}
	words = append(words, fmt.Sprintf("--seed %d --messages %d", o.seed, o.messages))
	for _, q := range o.quirks {
		words = append(words, "--quirk "+q)
	}
	return strings.Join(words, " ")
}

func quote(s string) string {
	if strings.ContainsAny(s, "*?[]") {
		return "'" + s + "'"
	}
	return s
}

func (o *options) run(cmd *cobra.Command) error {
	chosen, err := o.check()
	if err != nil {
		return err
	}
	if o.list {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.Join(ids(chosen), "\n"))
		return err
	}
	sink, err := openSink(o.pcap)
	if err != nil {
		return err
	}
	began := time.Now()
	var show display
	if o.json {
		show = &jsonDisplay{w: cmd.OutOrStdout()}
	} else {
		show = newTable(cmd.OutOrStdout(), cmd.ErrOrStderr(), len(chosen), o.quirks)
	}
	rows, err := o.playAll(cmd.Context(), chosen, sink, show)
	if cerr := sink.close(err == nil); err == nil {
		err = cerr
	}
	if err != nil {
		show.abandon()
		return err
	}
	s := summary{Seed: o.seed, Quirks: o.quirks, Command: o.command(), Rows: rows, Wall: time.Since(began), Captures: sink.files, snapLen: o.snapLen}
	for _, r := range rows {
		if !r.OK {
			s.Failed++
		}
	}
	if err := show.finish(&s); err != nil {
		return err
	}
	if s.Failed > 0 {
		return errFailed
	}
	return nil
}

// playAll runs the scenarios, several at a time, and hands them on in order.
func (o *options) playAll(ctx context.Context, chosen []scenario, sink *sink, show display) ([]outcome, error) {
	type done struct {
		out outcome
		cap *capture
		err error
	}
	queue := newPool(ctx, len(chosen), func(i int) done {
		c, err := sink.begin(chosen[i].id)
		if err != nil {
			return done{err: err}
		}
		out, err := o.play(&chosen[i], c.writer())
		return done{out, c, err}
	})
	defer queue.stop()
	var rows []outcome
	for i := range chosen {
		show.progress(i, chosen[i].id)
		d, err := queue.next()
		if err == nil {
			err = d.err
		}
		if err == nil {
			err = sink.add(d.cap)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", chosen[i].id, err)
		}
		rows = append(rows, d.out)
		show.row(&d.out)
	}
	return rows, nil
}
