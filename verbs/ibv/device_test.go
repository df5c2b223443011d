//go:build ibverbs && linux && cgo

package ibv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestOpenErrorNamesDeviceOrModule(t *testing.T) {
	_, err := Provider{}.Open("no such device")
	if err == nil || !strings.Contains(err.Error(), "no such device") && !strings.Contains(err.Error(), "ib_uverbs") {
		t.Errorf("open: %v", err)
	}
}

func TestQueryDevicePortGIDAndPKey(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		b.Logf("%+v", b.attr)
		if b.attr.MaxQP <= 0 || b.attr.MaxCQE <= 0 || b.attr.Ports == 0 || b.attr.NodeGUID != b.info.GUID {
			t.Errorf("%+v of %+v", b.attr, b.info)
		}
		p := must.Get(b.QueryPort(1))(b.T)
		b.Logf("%+v, address %v of type %v at %d", p, b.gid.GID, b.gid.Type, b.gid.Index)
		if p.State != verbs.PortActive || p.ActiveMTU.Bytes() == 0 || p.GIDs == 0 {
			t.Errorf("port %+v", p)
		}
		_, err := b.QueryPort(b.attr.Ports + 1)
		b.wantErr("a port after the last", err, nil)
		for _, i := range []int{-1, p.GIDs, 1 << 40} {
			_, err = b.QueryGID(1, i)
			b.wantErr("a GID index out of range", err, nil)
			_, err = b.QueryPKey(1, max(i, p.PKeys))
			b.wantErr("a P_Key index out of range", err, nil)
		}
		if p.PKeys > 0 { // iWARP has none
			_ = must.Get(b.QueryPKey(1, 0))(b.T)
		}
		b.Logf("counters %+v", b.Counters())
	})
}

func TestRC(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		b.needsModify() // immediate data needs InfiniBand as well
		one, other := b.pair(verbs.QPTypeRC, nil)
		// A message, and one with immediate data.
		b.recv(other, 1, 4096, 100)
		b.recv(other, 2, 8192, 100)
		b.post(one, verbs.SendWR{WRID: 3, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: b.sge(0, 100)},
			verbs.SendWR{WRID: 4, Opcode: verbs.OpSendImm, Flags: verbs.SendSignaled, SGL: b.sge(200, 50), Imm: 0x01020304})
		got := b.succeeds(1, 2, 3, 4)
		if wc := got[1]; wc.Opcode != verbs.WCOpRecv || wc.ByteLen != 100 || wc.QPN != other.QPN() || !bytes.Equal(b.buf[:100], b.buf[4096:4196]) {
			t.Errorf("message: %+v", wc)
		}
		if wc := got[2]; wc.Flags&verbs.WCWithImm == 0 || wc.Imm != 0x01020304 || wc.ByteLen != 50 {
			t.Errorf("message with immediate data: %+v", wc)
		}
		// A write, a write with immediate data, a read.
		b.recv(other, 5, 0, 0)
		b.post(one, verbs.SendWR{WRID: 6, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: b.sge(100, 3000), Remote: b.remote(20000)},
			verbs.SendWR{WRID: 7, Opcode: verbs.OpRDMAWriteImm, Flags: verbs.SendSignaled, SGL: b.sge(0, 8), Remote: b.remote(24000), Imm: 9},
			verbs.SendWR{WRID: 8, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: b.sge(30000, 3000), Remote: b.remote(20000)})
		got = b.succeeds(5, 6, 7, 8)
		if got[5].Opcode != verbs.WCOpRecvRDMAWithImm || got[5].Imm != 9 || !bytes.Equal(b.buf[100:3100], b.buf[30000:33000]) {
			t.Errorf("write and read: %+v", got)
		}
		// The caller may reuse inline data at once.
		in := bytes.Repeat([]byte{0xab}, 16)
		b.recv(other, 9, 4096, 64)
		b.post(one, verbs.SendWR{WRID: 10, Opcode: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendInline, Inline: in})
		clear(in)
		if b.succeeds(9, 10); !bytes.Equal(b.buf[4096:4112], bytes.Repeat([]byte{0xab}, 16)) {
			t.Errorf("inline: % x", b.buf[4096:4112])
		}
	})
}

func TestAtomics(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		b.needs(verbs.CapAtomics, "atomics")
		one, _ := b.pair(verbs.QPTypeRC, nil)
		at := int(-b.mr.Addr() & 7)
		binary.NativeEndian.PutUint64(b.buf[at:], 40)
		b.post(one, verbs.SendWR{WRID: 1, Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendSignaled, SGL: b.sge(1024, 8), Remote: b.remote(at), Atomic: verbs.Atomic{CompareAdd: 2}},
			verbs.SendWR{WRID: 2, Opcode: verbs.OpAtomicCmpAndSwp, Flags: verbs.SendSignaled, SGL: b.sge(2048, 8), Remote: b.remote(at), Atomic: verbs.Atomic{CompareAdd: 42, Swap: 7}})
		b.succeeds(1, 2)
		word := func(off int) uint64 { return binary.NativeEndian.Uint64(b.buf[off:]) }
		if word(at) != 7 || word(1024) != 40 || word(2048) != 42 {
			t.Errorf("word %d, results %d and %d; want 7, 40, 42", word(at), word(1024), word(2048))
		}
	})
}

func TestAtomicWrite(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		b.needsModify()
		one, _ := b.pair(verbs.QPTypeRC, nil)
		at := int(-b.mr.Addr() & 7)
		want := bytes.Clone(b.buf[512:520])
		wr := verbs.SendWR{WRID: 1, Opcode: verbs.OpAtomicWrite, Flags: verbs.SendSignaled, SGL: b.sge(512, 8), Remote: b.remote(at + 4096)}
		if !b.attr.Caps.Has(verbs.CapAtomicWrite) {
			_, err := one.PostSend([]verbs.SendWR{wr})
			b.wantErr("an atomic write on a device without", err, verbs.ErrNotSupported)
			return
		}
		b.post(one, wr)
		if b.succeeds(1); !bytes.Equal(b.buf[at+4096:][:8], want) {
			t.Errorf("written: % x, want % x", b.buf[at+4096:][:8], want)
		}
		wr.SGL = b.sge(512, 4)
		_, err := one.PostSend([]verbs.SendWR{wr})
		b.wantErr("an atomic write of four bytes", err, verbs.ErrInvalid)
	})
}

func TestUC(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		b.needs(verbs.CapUC, "UC")
		one, other := b.pair(verbs.QPTypeUC, nil)
		b.recv(other, 1, 4096, 100)
		b.post(one, verbs.SendWR{WRID: 2, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: b.sge(0, 100)})
		if b.succeeds(1, 2); !bytes.Equal(b.buf[:100], b.buf[4096:4196]) {
			t.Error("wrong bytes were received")
		}
	})
}

func TestUDReplyToSender(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		b.needs(verbs.CapUD, "UD")
		one, other := b.newQP(verbs.QPTypeUD, nil), b.newQP(verbs.QPTypeUD, nil)
		b.toRTS(one, 0)
		b.toRTS(other, 0)
		ah := must.Get(b.pd.CreateAH(b.self()))(b.T)
		b.recv(other, 1, 4096, verbs.GRHLen+100)
		b.recv(one, 2, 8192, verbs.GRHLen+100)
		b.post(one, verbs.SendWR{WRID: 3, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: b.sge(0, 100), UD: verbs.UD{AH: ah, QPN: other.QPN(), QKey: testKey}})
		wc := b.succeeds(1, 3)[1]
		if wc.Flags&verbs.WCWithGRH == 0 || wc.SrcQP != one.QPN() || wc.ByteLen != verbs.GRHLen+100 || !bytes.Equal(b.buf[:100], b.buf[4096+verbs.GRHLen:][:100]) {
			t.Fatalf("datagram: %+v", wc)
		}
		back := must.Get(verbs.InitAHFromWC(1, uint8(b.gid.Index), &wc, b.buf[4096:]))(b.T)
		ah = must.Get(b.pd.CreateAH(back))(b.T)
		b.post(other, verbs.SendWR{WRID: 4, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: b.sge(0, 10), UD: verbs.UD{AH: ah, QPN: wc.SrcQP, QKey: testKey}})
		b.succeeds(2, 4)
		_, err := one.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend, SGL: b.sge(0, 1)}})
		b.wantErr("a datagram without an address handle", err, verbs.ErrInvalid)
	})
}

func TestMulticast(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		b.needs(verbs.CapMulticast|verbs.CapUD, "multicast")
		qp := b.newQP(verbs.QPTypeUD, nil)
		b.toRTS(qp, 0)
		group := verbs.GID{10: 0xff, 11: 0xff, 12: 239, 13: 1, 14: 2, 15: 3}
		b.ok("join", qp.AttachMulticast(group))
		b.ok("leave", qp.DetachMulticast(group))
		b.wantErr("leaving twice", qp.DetachMulticast(group), nil)
		b.ok("join again", qp.AttachMulticast(group)) // the device is closed while it is in the group
	})
}

func TestRegMRAtAddress(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		const at = 0x7_0000_1230
		buf := BufferFor(at, 100)
		mr := must.Get(b.pd.RegMR(verbs.MRInit{Buf: buf, Addr: at, Access: verbs.AccessRemoteRead}))(b.T)
		if mr.Addr() != at || mr.Len() != 100 {
			t.Errorf("%d bytes at %#x", mr.Len(), mr.Addr())
		}
		// The kernel rejects memory with another offset in its page, and the error says why.
		_, err := b.pd.RegMR(verbs.MRInit{Buf: buf, Addr: at + 8})
		b.wantErr("another offset in the page", err, verbs.ErrInvalid)
		if err != nil && !strings.Contains(err.Error(), "into its page") {
			t.Errorf("%v does not give the reason", err)
		}
		if b.attr.Caps.Has(verbs.CapZeroBased) {
			mr = must.Get(b.pd.RegMR(verbs.MRInit{Buf: BufferFor(0, 64), Access: verbs.AccessZeroBased}))(b.T)
			if mr.Addr() != 0 {
				t.Errorf("zero-based at %#x", mr.Addr())
			}
		}
	})
}

func TestMemoryWindows(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		b.needs(verbs.CapMWType1|verbs.CapMWType2, "windows")
		one, other := b.pair(verbs.QPTypeRC, nil)
		info := verbs.BindInfo{MR: b.mr, Addr: b.mr.Addr() + 256, Length: 64, Access: verbs.AccessRemoteRead}
		read := func(id uint64, key verbs.RKey) verbs.SendWR {
			return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: b.sge(4096, 64), Remote: verbs.Remote{Addr: info.Addr, RKey: key}}
		}
		first := must.Get(b.pd.AllocMW(verbs.MWType1))(b.T)
		key := must.Get(one.BindMW(first, 1, verbs.SendSignaled, info))(b.T)
		if wc := b.succeeds(1)[1]; wc.Opcode != verbs.WCOpBindMW || first.RKey() != key {
			t.Errorf("bind: %+v, key %#x and %#x", wc, key, first.RKey())
		}
		b.post(other, read(2, key))
		if b.succeeds(2); !bytes.Equal(b.buf[256:320], b.buf[4096:4160]) {
			t.Error("wrong bytes were read through the window")
		}
		second := must.Get(b.pd.AllocMW(verbs.MWType2))(b.T)
		_, err := one.BindMW(second, 1, verbs.SendSignaled, info)
		b.wantErr("bind_mw of type 2", err, verbs.ErrInvalid)
		for id := uint64(10); id < 14; id += 2 { // twice: the second bind needs the key of the first
			key = verbs.NextRKey(second.RKey())
			b.post(one, verbs.SendWR{WRID: id, Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, Bind: verbs.Bind{MW: second, RKey: key, Info: info}})
			b.succeeds(id)
			if second.RKey() != key {
				t.Errorf("key %#x, want %#x", second.RKey(), key)
			}
			b.post(other, read(id+1, key))
			b.succeeds(id + 1)
			b.post(one, verbs.SendWR{WRID: id, Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: key})
			b.succeeds(id)
		}
		b.post(other, read(20, key))
		if wc := b.completions(b.cq, 1)[20]; wc.Status != verbs.WCRemAccessErr {
			t.Errorf("read through an invalidated window: %+v", wc)
		}
	})
}

func TestPollAndPostDoNotAllocate(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		one, other := b.pair(verbs.QPTypeRC, nil)
		recv := []verbs.RecvWR{{WRID: 1, SGL: b.sge(4096, 64)}}
		send := []verbs.SendWR{{WRID: 2, Opcode: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendInline, Inline: b.buf[:32]}}
		into := make([]verbs.WC, 4)
		if n := testing.AllocsPerRun(20, func() {
			_, err1 := other.PostRecv(recv)
			_, err2 := one.PostSend(send)
			must.Do(t, errors.Join(err1, err2))
			for done, until := 0, time.Now().Add(testTimeout); done < 2; {
				n, err := b.cq.Poll(into)
				if err != nil || time.Now().After(until) {
					t.Fatalf("%d completions, %v", done, err)
				}
				done += n
			}
		}); n > 0 {
			t.Errorf("%.1f allocations per round", n)
		}
	})
}

func TestCountersOfDeviceAndPorts(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		file := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("ports/1/hw_counters/sent_pkts", "12\n")
	write("ports/1/hw_counters/acks", "18446744073709551615\n")
	write("ports/1/hw_counters/lifespan", "10\n")
	write("ports/1/hw_counters/text", "none\n")
	want := []verbs.Counter{{Name: "acks", Value: 1<<64 - 1}, {Name: "sent_pkts", Value: 12}}
	if got := countersIn(dir); !slices.Equal(got, want) {
		t.Errorf("one port: %v, want %v", got, want)
	}
	write("ports/2/hw_counters/acks", "3\n")
	write("hw_counters/resets", "1\n")
	want = []verbs.Counter{{Name: "resets", Value: 1}, {Name: "port1_acks", Value: 1<<64 - 1}, {Name: "port1_sent_pkts", Value: 12}, {Name: "port2_acks", Value: 3}}
	if got := countersIn(dir); !slices.Equal(got, want) {
		t.Errorf("two ports: %v, want %v", got, want)
	}
	if got := countersIn(filepath.Join(dir, "none")); got != nil {
		t.Errorf("no device: %v", got)
	}
}

func TestSignallingRate(t *testing.T) {
	for _, c := range []struct {
		speed, width uint8
		want         uint64
	}{{1, 1, 2_500_000_000}, {32, 2, 103_125_000_000}, {128, 2, 425_000_000_000}, {3, 1, 0}, {1, 3, 0}} {
		if got := linkRateBps(c.speed, c.width); got != c.want {
			t.Errorf("speed %d, width %d: %d, want %d", c.speed, c.width, got, c.want)
		}
	}
}

func TestErrorsWrapErrnoAndVerbsError(t *testing.T) {
	for errno, want := range map[int]error{
		int(syscall.EINVAL): verbs.ErrInvalid, -int(syscall.EINVAL): verbs.ErrInvalid, int(syscall.ENOMEM): verbs.ErrNoMemory,
		int(syscall.EBUSY): verbs.ErrBusy, int(syscall.EPERM): verbs.ErrPerm, int(syscall.ENOENT): verbs.ErrNotFound,
		int(syscall.EOPNOTSUPP): verbs.ErrNotSupported, int(syscall.ETIMEDOUT): verbs.ErrTimeout,
	} {
		err := opError("modify_qp", "qp 0x11", errnoError(errno))
		if !errors.Is(err, want) || !errors.Is(err, syscall.Errno(max(errno, -errno))) {
			t.Errorf("errno %d: %v is not %v and the errno", errno, err, want)
		}
		if !strings.HasPrefix(err.Error(), "modify_qp qp 0x11: ") {
			t.Errorf("%q does not begin with verb and object", err)
		}
	}
	if err := errnoError(int(syscall.EIO)); errors.Is(err, verbs.ErrInvalid) || !errors.Is(err, syscall.EIO) {
		t.Errorf("EIO is %v", err)
	}
}
