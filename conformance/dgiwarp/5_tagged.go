package dgiwarp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// taggedLen is the length of the header of a tagged segment.
const taggedLen = 14

// Limits of records.
const (
	maxOpenRecords  = 64
	maxRecordRanges = 64
	recordTimeout   = 10 * time.Millisecond
	recordLen       = 20 // without ranges
	rangeLen        = 8
)

// byteRange is a range of octets that have arrived.
type byteRange struct{ off, n int }

// writeRecords returns the packets of a Write-Record to targetMem at off, with n octets each.
func (p *peer) writeRecords(msn uint32, off int, message []byte, n int) []iwarp.Packet {
	return iwarp.WriteRecords(msn, p.targetAddr(off), message, immediateData, n)
}

// expectRecord fails the case unless the next completion is that of receive id for a Write-Record:
// an RDMA Write of length bytes to targetMem at off that takes a receive. The receive buffer has 40
// octets for the source address, where UD has the GRH, and then the record: where the Write begins,
// its length, and spans, the ranges that have arrived.
func (q *deviceQP) expectRecord(id uint64, off, length int, spans ...byteRange) {
	wc := q.ExpectRecv(id, grhAreaLen+recordLen+rangeLen*len(spans))
	q.Check(wc.Opcode == verbs.WCOpRecvRDMAWithImm && wc.Imm == immediateData, fmt.Sprintf("a Write with immediate data %#x", immediateData), "%s", rig.Describe(&wc))
	at := q.targetAddr(off)
	want := binary.BigEndian.AppendUint32(nil, at.STag)
	want = binary.BigEndian.AppendUint64(want, at.TO)
	want = binary.BigEndian.AppendUint32(want, uint32(length))
	want = binary.BigEndian.AppendUint32(want, uint32(len(spans)))
	for _, s := range spans {
		want = binary.BigEndian.AppendUint32(want, uint32(s.off))
		want = binary.BigEndian.AppendUint32(want, uint32(s.n))
	}
	q.ExpectBytes(q.localMem, int(id-1)*q.recvLen+grhAreaLen, want)
}

// recordedOctets expects that receive id completes for a Write-Record, and returns where the Write
// begins and how many of its octets have arrived.
func (q *deviceQP) recordedOctets(id uint64) (to uint64, n int) {
	wc := q.ExpectCompletion(id, verbs.WCSuccess)
	q.Check(wc.Opcode == verbs.WCOpRecvRDMAWithImm && wc.ByteLen >= grhAreaLen+recordLen, "a record", "%s", rig.Describe(&wc))
	at := int(id-1) * q.recvLen
	record := q.localMem.Buf[at+grhAreaLen : at+int(wc.ByteLen)]
	for spans := record[recordLen:]; len(spans) >= rangeLen; spans = spans[rangeLen:] {
		n += int(binary.BigEndian.Uint32(spans[4:])) // the length, after the offset
	}
	return binary.BigEndian.Uint64(record[4:]), n // the TO, after the STag
}

// foreignAddrs returns the addresses of memory of another protection domain, and of a window of
// another queue pair if the device has such windows.
func (h *host) foreignAddrs() []iwarp.Addr {
	pd, err := h.Device.AllocPD()
	h.Must("another protection domain", err)
	all := []iwarp.Addr{addrOf(h.MemoryIn(pd, 64, allAccess), 0)}
	if h.Caps.Has(verbs.CapMWType2) {
		m := h.Memory(64, verbs.AccessLocalWrite|verbs.AccessMWBind)
		key := h.BindWindow(h.newQP(setup{}).qp, m, 0, 64, verbs.AccessRemoteWrite|verbs.AccessRemoteRead)
		all = append(all, iwarp.At(uint32(key), m.Addr()))
	}
	return all
}

var taggedCases = []conformance.Case{{
	ID: "dg/write/placed-in-any-order", Cite: cite("5", "dg/tag/1"),
	Title:   "The segments of a Write are placed in any order",
	Sends:   "a Write of five segments out of order, one of them missing, and a Send after it",
	Expects: "all received segments are in memory, and nothing else",
	Defects: []string{"SegmentsInOrder"}, Run: onPeer(func(p *peer) {
		message, before := data(500), bytes.Clone(p.targetMem.Buf[1200:1300])
		segments := p.writeToTarget(1000, message).Segments(taggedLen + 100)
		for _, i := range []int{3, 0, 4, 1} {
			p.sendSegments(segments[i])
		}
		p.sendSegments(iwarp.Send(1, nil))
		p.expectRecv(1, nil)
		p.ExpectBytes(p.targetMem, 1000, message[:200])
		p.ExpectBytes(p.targetMem, 1200, before)
		p.ExpectBytes(p.targetMem, 1300, message[300:])
		p.ExpectUnchangedOutside(p.targetMem, 1000, 500)
	}),
}, {
	ID: "dg/write/longer-than-any-send", Cite: cite("5", "dg/tag/1"),
	Title:   "A Write may be longer than the maximum UD Send",
	Sends:   "a Write of 128 KiB, in reverse order; the device sends one as long",
	Expects: "all of it in memory; all of it on the wire, each segment with its offset",
	Defects: []string{"SegmentsInOrder"}, Run: onSetup(setup{receives: 1, memLen: 2 * maxSend}, func(p *peer) {
		message := data(2 * maxSend)
		segments := p.writeToTarget(0, message).Segments(taggedLen + 4096)
		for i := range segments {
			p.sendSegments(segments[len(segments)-1-i])
		}
		p.sendSegments(iwarp.Send(1, nil))
		p.expectRecv(1, nil)
		p.ExpectBytes(p.targetMem, 0, message)
		p.PostSend(p.qp, p.wr(2, verbs.OpRDMAWrite, 0, 2*maxSend))
		at := 0
		for _, a := range p.nextMessage() {
			n := len(a.Segment.Payload)
			p.checkPacket(iwarp.UD(iwarp.Write(peerSTag, peerTO+uint64(at), p.localMem.Buf[at:at+n])), a)
			at += n
		}
		p.Check(at == 2*maxSend, "131072 octets", "%d", at)
	}),
}, {
	ID: "dg/write/nobody-is-told", Cite: cite("5", "dg/tag/1"),
	Title:   "A Write causes no completion, event or response at its target",
	Sends:   "Writes of one and of several segments to a queue pair with receives",
	Expects: "no completion, no event, no response; the data is in memory",
	Defects: []string{"WriteTakesReceive"}, Run: onPeer(func(p *peer) {
		p.sendSegments(p.writeToTarget(0, data(8)), zeroLengthWrite())
		p.sendSegments(p.writeToTarget(8, data(300)).Segments(taggedLen + 100)...)
		p.expectNothingElse()
		p.ExpectBytes(p.targetMem, 0, data(8))
		p.ExpectBytes(p.targetMem, 8, data(300))
		p.ExpectUntouched(p.localMem)
	}),
}, {
	ID: "dg/write/every-segment-is-checked", Cite: cite("5", "dg/tag/8"),
	Title:   "Every segment of a Write is checked before it is placed",
	Sends:   "Writes whose first segment is valid, and whose second begins or ends out of bounds, has another key, or one without remote write access",
	Expects: "the first is in memory, and nothing of the second; an error message about it",
	Defects: []string{"FirstSegmentChecked", "RangeSlack", "RightsIgnored"}, Run: onHost(func(h *host) {
		locked := h.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
		for _, second := range []makeSegment{
			func(q *deviceQP) iwarp.Segment { return q.writeToTarget(len(q.targetMem.Buf), data(64)) },
			func(q *deviceQP) iwarp.Segment { return q.writeToTarget(len(q.targetMem.Buf)-1, data(64)) },
			func(q *deviceQP) iwarp.Segment { return q.writeToTarget(-1, data(64)) },
			func(q *deviceQP) iwarp.Segment { return q.writeToTarget(0, data(64)).STag(unknownSTag) },
			func(*deviceQP) iwarp.Segment { return writeTo(addrOf(locked, 0), data(64)) },
		} {
			q := h.newQP(setup{receives: 1})
			p := q.peer(0)
			p.expectErrorFor(q.writeToTarget(64, data(64)).Last(false), second(q))
			p.ExpectBytes(q.targetMem, 64, data(64))
			p.ExpectUnchangedOutside(q.targetMem, 64, 64)
			p.ExpectUntouched(locked)
		}
	}),
}, {
	ID: "dg/write/key-of-another-domain", Cite: cite("5", "dg/tag/8"),
	Title:   "A key is valid only for queue pairs of its protection domain",
	Sends:   "a Write with the key of a region of another domain, and one with that of a window of another queue pair",
	Expects: "error messages with the code for such keys, and memory unchanged",
	Defects: []string{"IgnorePD", "ForeignKeyUnknown", "OtherWindowUnknown"}, Run: onHost(func(h *host) {
		for _, at := range h.foreignAddrs() {
			p := h.newQP(setup{receives: 1}).peer(0)
			wrong := writeTo(at, data(64))
			p.sendSegments(wrong)
			p.expectErrorMessage(wrong, iwarp.DDPTaggedSTagNotAssociated)
			p.expectErrorState()
		}
	}),
}, {
	ID: "dg/write/closed-region", Cite: cite("5", "dg/tag/8"),
	Title:   "The key of a deregistered region is invalid",
	Sends:   "a Write, and the same after the region was deregistered",
	Expects: "an error message, and memory unchanged",
	Defects: []string{"StaleKeys"}, Run: onPeer(func(p *peer) {
		m := p.Memory(64, allAccess)
		at := addrOf(m, 0)
		p.sendSegments(writeTo(at, data(8)), iwarp.Send(1, nil))
		p.expectRecv(1, nil)
		p.ExpectBytes(m, 0, data(8))
		m.Snapshot()
		p.Must("a region that can be deregistered", m.Close())
		p.expectErrorFor(writeTo(at, make([]byte, 64)))
		p.ExpectUntouched(m)
		p.expectErrorState()
	}),
}, {
	ID: "dg/record/layout", Cite: cite("5", "dg/tag/2"), Setup: path1500,
	Title:   "Each segment of a Write-Record carries the MSN and length of the message, its offset, and the immediate data",
	Sends:   "nothing; the device sends two of several segments",
	Expects: "tagged segments with opcode 15 and 16 octets after the DDP header: MSN, offset, length, immediate data",
	Defects: []string{"RecordFieldsSwapped"}, Run: onPeer(func(p *peer) {
		var numbers []uint32
		for range 2 {
			const n = 5000
			p.PostSend(p.qp, p.writeRecordWR(1, n))
			all := p.nextMessage()
			p.Check(all[0].Record != nil, "the header of a Write-Record", "%v", all[0].Packet)
			msn, at := *all[0].Record.MSN, 0
			for _, a := range all {
				payload := a.Segment.Payload
				want := iwarp.WriteRecord(msn, iwarp.At(peerSTag, peerTO+uint64(at)), p.localMem.Buf[at:at+len(payload)], immediateData)
				want = want.EditRecord(func(r *iwarp.RecordHeader) { r.MO, r.Length = new(uint32(at)), new(uint32(n)) })
				at += len(payload)
				p.checkPacket(want.EditSegment(func(s iwarp.Segment) iwarp.Segment { return s.Last(at == n) }), a)
			}
			numbers = append(numbers, msn)
			p.ExpectCompletion(1, verbs.WCSuccess)
		}
		p.Check(numbers[0] != numbers[1], "messages with different MSNs", "%d twice", numbers[0])
	}),
}, {
	ID: "dg/record/segments-must-agree", Cite: cite("5", "dg/tag/3"),
	Title:   "A segment with another address, key or length than the first segment of its record is dropped",
	Sends:   "the first and the last of three segments, and the second with another address, the key of other memory, another key of the same memory, or another length",
	Expects: "a record without the second after 10 ms, and nothing of the second in memory",
	Defects: []string{"PiecesUnchecked"}, Run: onPeer(func(p *peer) {
		other := p.Memory(128, allAccess)
		same := rig.Result(p.PD.RegMR(verbs.MRInit{Buf: p.targetMem.Buf, Access: allAccess}))(p.Rig, "a second region of the same memory")
		var was [4][]byte
		for i := range was {
			was[i] = bytes.Clone(p.targetMem.Buf[100*i+32 : 100*i+64])
		}
		seg := func(edit func(iwarp.Segment) iwarp.Segment) func(iwarp.Packet) iwarp.Packet {
			return func(pkt iwarp.Packet) iwarp.Packet { return pkt.EditSegment(edit) }
		}
		for i, wrong := range []func(iwarp.Packet) iwarp.Packet{
			seg(func(s iwarp.Segment) iwarp.Segment { return s.TO(*s.DDP.TO + 1000) }),
			seg(func(s iwarp.Segment) iwarp.Segment { return s.STag(uint32(other.RKey())).TO(other.Addr()) }),
			seg(func(s iwarp.Segment) iwarp.Segment { return s.STag(uint32(same.RKey())) }),
			func(pkt iwarp.Packet) iwarp.Packet {
				return pkt.EditRecord(func(r *iwarp.RecordHeader) { r.Length = new(uint32(97)) })
			},
		} {
			off := i * 100
			pkts := p.writeRecords(uint32(i+1), off, data(96), 32)
			p.send(pkts[0], pkts[2], wrong(pkts[1]))
			p.expectRecord(uint64(i+1), off, 96, byteRange{0, 32}, byteRange{64, 32})
			p.ExpectBytes(p.targetMem, off, data(96)[:32])
			p.ExpectBytes(p.targetMem, off+64, data(96)[64:])
			p.ExpectBytes(p.targetMem, off+32, was[i])
		}
		p.ExpectUntouched(other)
		p.ExpectUnchangedOutside(p.targetMem, 0, 400)
	}),
}, {
	ID: "dg/record/sources-are-kept-apart", Cite: cite("5", "dg/tag/2", "dg/ud/4"),
	Title:   "Segments of different sources with the same MSN are of different records",
	Sends:   "Write-Records of two segments with the same MSN from two hosts, and from two ports and two queue pairs of one host, first halves before second ones",
	Expects: "a record of each, or one of each half if they arrive more than 10 ms apart",
	Defects: []string{"RecordSourcesMixed"}, Run: onPeer(func(p *peer) {
		sources, missing := p.similarSources(), map[uint64]int{}
		for half := range 2 {
			for i, from := range sources {
				missing[from.targetAddr(100*i).TO] = 64
				from.send(from.writeRecords(5, 100*i, data(64), 32)[half])
			}
		}
		for id := uint64(1); len(missing) > 0; id++ {
			to, n := p.recordedOctets(id)
			if missing[to] -= n; missing[to] == 0 {
				delete(missing, to)
			}
			p.Check(missing[to] >= 0, "each octet in one record", "a record of %d octets of the Write to %#x", n, to)
		}
	}),
}, {
	ID: "dg/record/completes-when-whole", Cite: cite("5", "dg/tag/4"),
	Title:   "A Write-Record completes a receive when all of it has arrived, whichever segment arrived last",
	Sends:   "three segments, the last of the message first; another time in order",
	Expects: "a completion after the third, and not before",
	Defects: []string{"RecordWaitsForLast"}, Run: onPeer(func(p *peer) {
		for i, order := range [][]int{{2, 0, 1}, {0, 1, 2}, {1, 2, 0}} {
			pkts := p.writeRecords(uint32(i+1), 100*i, data(96), 32)
			begun := p.Now()
			p.send(pkts[order[0]], pkts[order[1]])
			p.syncDevice()
			if p.Now() < begun+recordTimeout { // false on a slow machine
				p.ExpectNoCompletion()
			}
			p.send(pkts[order[2]])
			p.expectRecord(uint64(i+1), 100*i, 96, byteRange{0, 96})
			p.Check(!p.Virtual || p.Now() < begun+recordTimeout, "a completion at once", "only after %v", p.Now()-begun)
			p.ExpectBytes(p.targetMem, 100*i, data(96))
		}
	}),
}, {
	ID: "dg/record/completes-without-the-last", Cite: cite("5", "dg/tag/4", "dg/tag/5"),
	Title:   "An incomplete Write-Record completes a receive 10 ms after its first segment arrived",
	Sends:   "two of three segments, 5 ms apart, without the last of the message",
	Expects: "a completion after 10 ms, not before, with the received ranges",
	Defects: []string{"RecordWaitsForLast"}, Run: onPeer(func(p *peer) {
		pkts := p.writeRecords(1, 0, data(96), 32)
		begun := p.Now()
		p.send(pkts[0])
		p.Sleep(recordTimeout / 2)
		p.send(pkts[1])
		p.expectRecord(1, 0, 96, byteRange{0, 64})
		took := p.Now() - begun
		p.Check(took >= recordTimeout, "a completion after 10 ms", "after %v", took)
		p.Check(!p.Virtual || took < recordTimeout+recordTimeout/2, "a completion after 10 ms", "after %v", took)
		p.ExpectBytes(p.targetMem, 0, data(96)[:64])
		p.ExpectUnchangedOutside(p.targetMem, 0, 64)
	}),
}, {
	ID: "dg/record/ranges-tell-what-came", Cite: cite("5", "dg/tag/5"),
	Title:   "A record lists exactly the received ranges, in order",
	Sends:   "the fifth, the third and the first of six segments",
	Expects: "three ranges, by offset, and only their octets in memory",
	Defects: []string{"RecordClaimsAll"}, Run: onPeer(func(p *peer) {
		pkts := p.writeRecords(1, 64, data(96), 16)
		p.send(pkts[4], pkts[2], pkts[0])
		p.expectRecord(1, 64, 96, byteRange{0, 16}, byteRange{32, 16}, byteRange{64, 16})
		for _, off := range []int{0, 32, 64} {
			p.ExpectBytes(p.targetMem, 64+off, data(96)[off:off+16])
		}
	}),
}, {
	ID: "dg/record/ranges-that-touch-are-one", Cite: cite("5", "dg/tag/5"),
	Title:   "Ranges of a record neither touch nor overlap",
	Sends:   "the second, the first, the second again, and the fourth of five segments; another time segments that overlap",
	Expects: "two ranges, the first of two segments",
	Defects: []string{"RangesUnjoined"}, Run: onPeer(func(p *peer) {
		pkts := p.writeRecords(1, 0, data(80), 16)
		p.send(pkts[1], pkts[0], pkts[1], pkts[3])
		p.expectRecord(1, 0, 80, byteRange{0, 32}, byteRange{48, 16})
		part := func(from, to int) iwarp.Packet {
			pkt := iwarp.WriteRecord(2, p.targetAddr(100+from), data(80)[from:to], immediateData).EditRecord(func(r *iwarp.RecordHeader) {
				r.MO, r.Length = new(uint32(from)), new(uint32(80))
			})
			return pkt.EditSegment(func(s iwarp.Segment) iwarp.Segment { return s.Last(to == 80) })
		}
		p.send(part(20, 40), part(0, 30), part(50, 60), part(40, 45))
		p.expectRecord(2, 100, 80, byteRange{0, 45}, byteRange{50, 10})
	}),
}, {
	ID: "dg/record/more-ranges-than-the-receive-holds", Cite: cite("5", "dg/tag/5"),
	Title:   "Ranges that do not fit into the receive are omitted, and the count is that of the others",
	Sends:   "four ranges, to a receive with room for two, and one range, to a receive with room for none",
	Expects: "two ranges, and a count of two; then no range, and a count of 0",
	Defects: []string{"RecordClaimsAll"},
	Run: onSetup(setup{receives: 1, recvLen: recordLen + 2*rangeLen + 3}, func(p *peer) {
		pkts := p.writeRecords(1, 0, data(128), 16)
		p.send(pkts[0], pkts[2], pkts[4], pkts[6])
		p.expectRecord(1, 0, 128, byteRange{0, 16}, byteRange{32, 16})
		p.ExpectUnchangedOutside(p.localMem, 0, grhAreaLen+recordLen+2*rangeLen)
		p.PostRecv(p.qp, 2, p.localMem.SGE(p.recvLen, grhAreaLen+recordLen))
		p.send(p.writeRecords(2, 0, data(16), 16)...)
		p.expectRecord(2, 0, 16)
	}),
}, {
	ID: "dg/record/more-ranges-than-fit", Cite: cite("5", "dg/tag/6"),
	Title:   "A record has at most 64 ranges: a segment that needs one more is dropped, and not recorded",
	Sends:   "65 segments that do not touch, then one that touches one of them",
	Expects: "64 ranges, one of them of two segments, and nothing of the 65th in memory",
	Defects: []string{"RecordClaimsAll"}, Run: onSetup(setup{receives: 1, recvLen: 1024}, func(p *peer) {
		const n = 2 * (maxRecordRanges + 1)
		pkts := p.writeRecords(1, 0, data(8*n), 8)
		var spans []byteRange
		for i := range maxRecordRanges {
			p.send(pkts[2*i])
			spans = append(spans, byteRange{16 * i, 8})
		}
		p.send(pkts[2*maxRecordRanges], pkts[1])
		spans = slices.Delete(spans, 0, 2)
		spans = slices.Insert(spans, 0, byteRange{0, 24})
		p.expectRecord(1, 0, 8*n, spans...)
		p.ExpectUnchangedOutside(p.targetMem, 0, 16*maxRecordRanges)
	}),
}, {
	ID: "dg/record/more-records-than-fit", Cite: cite("5", "dg/tag/6"),
	Title:   "At most 64 records are open: a segment that needs one more is dropped, and not recorded",
	Sends:   "the first segments of 65 records",
	Expects: "64 completions, of the first 64, and nothing of the last in memory",
	Defects: []string{"PiecesUnbounded"},
	Run: onSetup(setup{receives: maxOpenRecords + 1, recvLen: recordLen + rangeLen}, func(p *peer) {
		for i := range maxOpenRecords + 1 {
			p.send(p.writeRecords(uint32(i+1), 16*i, data(16), 8)[0])
		}
		for i := range maxOpenRecords {
			p.expectRecord(uint64(i+1), 16*i, 16, byteRange{0, 8})
		}
		p.expectNothingElse()
		p.ExpectUnchangedOutside(p.targetMem, 0, 16*maxOpenRecords)
	}),
}, {
	ID: "dg/record/without-receive-is-dropped", Cite: cite("5", "dg/tag/7"),
	Title:   "A record that completes without a posted receive is dropped; placed data stays, and no error is reported",
	Sends:   "a complete record and half of one to a queue pair without receives; another after receives are posted",
	Expects: "no response, no event, the queue pair still works, the data in memory; then a completion of the last only",
	Defects: []string{"NoReceiveIsError"}, Run: onSetup(setup{}, func(p *peer) {
		p.send(p.writeRecords(1, 0, data(32), 16)...)
		p.send(p.writeRecords(2, 32, data(32), 16)[0])
		p.expectNothingElse()
		p.ExpectState(p.qp, verbs.QPStateRTS)
		p.Sleep(2 * recordTimeout)
		p.PostRecv(p.qp, 1, p.localMem.SGE(0, p.recvLen))
		p.expectNoCompletionYet()
		p.ExpectBytes(p.targetMem, 0, data(32))
		p.ExpectBytes(p.targetMem, 32, data(32)[:16])
		p.send(p.writeRecords(3, 64, data(32), 32)...)
		p.expectRecord(1, 64, 32, byteRange{0, 32})
	}),
}, {
	ID: "dg/record/receive-in-read-only-memory", Cite: cite("5", "dg/tag/5", "dg/ud/12"),
	Title:   "A record for which the memory of the receive must not be written completes the receive with an error, and fails the queue pair",
	Sends:   "a complete record to a queue pair whose receive lacks local write access",
	Expects: "the receive is refused, or completes with LOC_PROT_ERR or LOC_ACCESS_ERR and moves the queue pair to ERR; its memory is unchanged, and nothing is sent",
	Defects: []string{"RecordIntoBadMemorySucceeds", "RecordErrorKeepsQP"}, Run: onSetup(setup{}, func(p *peer) {
		p.expectReadOnlyReceiveFails(p.writeRecords(1, 0, data(32), 32)...)
	}),
}, {
	ID: "dg/record/invalid-segment-is-not-recorded", Cite: cite("5", "dg/tag/4", "dg/err/2"), Level: conformance.Should, Setup: setupIsolated,
	Title:   "An invalid segment does not begin a record, and does not end the record that it belongs to",
	Sends:   "to a queue pair that survives errors, a record whose second segment is out of bounds, and the first segment of one that is out of bounds",
	Expects: "error messages; a completion with the first segment of the first record, and none of the second",
	Defects: []string{"InvalidSegmentEndsRecord"}, Run: onSetup(setup{receives: 2}, func(p *peer) {
		end := len(p.targetMem.Buf)
		for _, pkt := range p.writeRecords(1, end-8, data(16), 8) {
			p.send(pkt)
		}
		p.expect(iwarp.UD(iwarp.Op(iwarp.OpTerminate)))
		p.expectRecord(1, end-8, 16, byteRange{0, 8})
		p.send(p.writeRecords(2, end, data(16), 8)[0])
		p.expect(iwarp.UD(iwarp.Op(iwarp.OpTerminate)))
		p.Sleep(2 * recordTimeout)
		p.expectNoCompletionYet()
	}),
}}

// expectReadOnlyReceiveFails posts a receive in memory without local write, and sends packets of a
// message. Unless the device refuses the receive, it must complete it in error, with status
// LOC_PROT_ERR or LOC_ACCESS_ERR, leave the memory unchanged, send nothing, and move the queue pair
// to ERR.
func (p *peer) expectReadOnlyReceiveFails(message ...iwarp.Packet) {
	m := p.Memory(p.recvLen, verbs.AccessRemoteRead)
	if n, err := p.qp.PostRecv([]verbs.RecvWR{{WRID: 1, SGL: m.SGL(0, p.recvLen)}}); err != nil {
		p.Check(n == 0, "no receive posted if it is refused", "%d", n)
		return
	}
	p.send(message...)
	wc := p.NextCompletion()
	p.Check(wc.WRID == 1 && (wc.Status == verbs.WCLocProtErr || wc.Status == verbs.WCLocAccessErr),
		"a receive that fails without local write", "%s", rig.Describe(&wc))
	p.ExpectUntouched(m)
	p.expectSilence(silencePeriod)
	p.ExpectState(p.qp, verbs.QPStateErr)
}
