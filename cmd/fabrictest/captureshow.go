package main

import (
	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/capture"
	"github.com/fabrictest/fabrictest/internal/cmdline"
)

// newCaptureShowCommand returns the command `fabrictest capture show`, which prints the
// decoded packets of a capture.
func newCaptureShowCommand() *cobra.Command {
	var opts capture.PrintOptions
	var qps, psns []string
	cmd := &cobra.Command{
		Use:   "show FILE...",
		Short: "Decode the RoCEv2 and iWARP packets of a capture, a line per packet",
		Long: `Decode captures, pcap or pcapng, packed with gzip or not; "-" is the standard
input. A line for each packet says what it is in RoCEv2 (with the connection
manager on QP 1) or in iWARP (MPA, DDP, RDMAP, from TCP streams put together).

Packets are marked with "!" for what one looks for: sequence numbers seen before,
missing or late, acknowledgements said twice, NAKs, refusals, wrong checksums,
congestion, and comments that whoever wrote the file left on a packet. A mark is
what the capture shows at one place; a retransmission after a loss further on is
quite in order.

Queue pairs, PSNs and messages select packets; of several values of one flag any
may match, of several flags all must. --op takes a pattern for the name of a
message, with or without its transport, and "ack", "nak" or "rnr" for what an
acknowledgement says. A queue pair is that which a packet goes to: its answers
go to the peer's.

Exit codes: 0 all was read, 1 a file is damaged (what comes before is shown) or
cannot be read, 2 it was called wrongly.`,
		Example: `  fabrictest capture show run/clean-rc-sim/capture.pcapng.gz
  fabrictest capture show --problems capture.pcapng          what went wrong
  fabrictest capture show --qp 0x11 --psn 100-120 -v a.pcap  these, header by header
  fabrictest capture show --op '*READ*' --host host1 a.pcapng
  fabrictest capture show --op nak --op rnr a.pcap
  fabrictest capture show -q --stats a.pcap                  counts by message and flow
  tcpdump -w - port 4791 | fabrictest capture show -         as it happens
  fabrictest capture show --json a.pcap | jq 'select(.marks)'`,
		Args: atLeast(1, "name a capture to decode, or - for the standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := selectPackets(&opts.Filter, qps, psns); err != nil {
				return err
			}
			if opts.Limit < 0 {
				return cmdline.Errorf("-n %d: a number of packets is not negative", opts.Limit)
			}
			opts.Width, opts.Colour = capture.TerminalProperties(uncleaned(cmd.OutOrStdout()))
			out := cmd.OutOrStdout()
			if opts.Colour {
				out = uncleaned(out)
			}
			ok, err := capture.PrintFiles(cmd.Context(), capture.Streams{In: cmd.InOrStdin(), Out: out, Err: cmd.ErrOrStderr()}, args, opts)
			if err == nil && !ok {
				return errFailed
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&opts.Verbose, "verbose", "v", false, "print all headers, field by field")
	f.BoolVarP(&opts.Hex, "hex", "x", false, "print the bytes of each packet")
	f.BoolVar(&opts.JSON, "json", false, "print JSON, an object a packet; with -v and -x headers and bytes too")
	f.BoolVar(&opts.Stats, "stats", false, "end with counts by message and by flow")
	f.BoolVarP(&opts.StatsOnly, "quiet", "q", false, "print the counts only")
	f.BoolVar(&opts.Delta, "delta", false, "print times since the packet before, not since the first")
	f.IntVarP(&opts.Limit, "count", "n", 0, "stop after `N` selected packets")
	f.StringSliceVar(&qps, "qp", nil, "only packets to queue pair `N`, such as 17 or 0x11")
	f.StringSliceVar(&psns, "psn", nil, "only PSN `N`, or those from A to B: A-B")
	f.StringSliceVar(&opts.Filter.Ops, "op", nil, "only messages whose name is like `GLOB`, such as 'RC SEND*'")
	f.StringSliceVar(&opts.Filter.Hosts, "host", nil, "only packets from or to `ADDR`: an address, a prefix, or a host's name")
	f.BoolVar(&opts.Filter.OnlyMarked, "problems", false, "only packets that are marked")
	return cmd
}

// selectPackets fills in what the flags select.
func selectPackets(f *capture.Filter, qps, psns []string) error {
	for _, s := range qps {
		qp, err := capture.ParseQP(s)
		if err != nil {
			return cmdline.Errorf("--qp: %w", err)
		}
		f.QPs = append(f.QPs, qp)
	}
	for _, s := range psns {
		r, err := capture.ParseRange(s)
		if err != nil {
			return cmdline.Errorf("--psn: %w", err)
		}
		f.PSNs = append(f.PSNs, r)
	}
	for _, s := range f.Ops {
		if err := capture.ValidateOpPattern(s); err != nil {
			return cmdline.Errorf("--op: %w", err)
		}
	}
	return nil
}
