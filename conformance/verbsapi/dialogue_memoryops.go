package verbsapi

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// register registers a part of the buffer as the region of the step, with random rights, domain and
// address. It first closes the old region, and does nothing if that cannot be closed.
func (s *memorySession) register(step memoryStep) {
	if s.regions[step.region] != nil && !s.closeRegion(step.region) {
		return
	}
	remote := rig.RemoteAccess(s.DUT)
	access := []verbs.Access{
		regionAccess(s.DUT, remote), regionAccess(s.DUT, remote), regionAccess(s.DUT, remote), regionAccess(s.DUT, verbs.AccessRemoteRead), regionAccess(s.DUT, verbs.AccessRemoteWrite),
		verbs.AccessRemoteRead, verbs.AccessLocalWrite | remote, verbs.AccessRemoteRead | regionAccess(s.DUT, 0)&verbs.AccessMWBind,
	}[step.n%8]
	r := &model.VerbsRegion{VerbsRange: model.VerbsRange{Off: 2 * step.from, Len: 64 + 2*step.length}, Access: access}
	if step.n%5 == 0 {
		r.PD = 1
	}
	init := verbs.MRInit{Buf: s.buf.Buf[r.Off:][:r.Len], Access: access}
	if step.n%4 == 0 {
		// The memory must begin as far into its page as the address: Linux refuses others.
		init.Addr = 0x5000_0000_0000 + uint64(step.n)*4096 + (s.whole[0].Addr()+uint64(r.Off))%4096
	}
	if step.n%9 == 4 && s.DUT.Caps.Has(verbs.CapZeroBased) {
		init.Addr, init.Access = 0, init.Access|verbs.AccessZeroBased
	}
	mr := rig.Result(s.pds[r.PD].RegMR(init))(s.DUT, "a region")
	s.DUT.Note("region %d is bytes %d to %d, at %#x, with rights %#x, in domain %d", step.region+1, r.Off, r.Off+r.Len, mr.Addr(), uint32(access), r.PD+1)
	if zeroBased := init.Access&verbs.AccessZeroBased != 0; init.Addr != 0 || zeroBased {
		s.DUT.Check(mr.Addr() == init.Addr, fmt.Sprintf("a region at %#x", init.Addr), "%#x", mr.Addr())
	}
	r.Base, r.LKey, r.RKey = mr.Addr(), mr.LKey(), mr.RKey()
	s.regions[step.region], s.model.Regions[step.region] = mr, r
}

// closeRegion closes a region, and reports whether it is closed. The verb must fail if a window is
// bound to the region, and may fail if one may be.
func (s *memorySession) closeRegion(i int) (closed bool) {
	if s.regions[i] == nil {
		return true
	}
	r := s.model.Regions[i]
	bound, maybe := s.model.BoundTo(r)
	err := s.regions[i].Close()
	s.DUT.Note("close region %d, with %d bound windows: %v", i+1, bound, err)
	switch {
	case bound > 0:
		s.DUT.MustFail(fmt.Sprintf("closing region %d, to which a window is bound,", i+1), err, nil)
		return false
	case maybe > 0 && err != nil:
		return false
	}
	s.DUT.Must(fmt.Sprintf("region %d without windows that can be closed", i+1), err)
	s.stale = append(s.stale, verbs.Remote{Addr: r.Base, RKey: r.RKey})
	s.regions[i], s.model.Regions[i] = nil, nil
	return true
}

// rangeIn returns an address and a length for a step: in 13 of 16 steps within the range of size
// bytes at base, else beyond its end, before its beginning, or far from it.
func rangeIn(step memoryStep, base uint64, size int) (addr uint64, n int) {
	n = max(1, min(step.length, size))
	switch step.n % 16 {
	case 0:
		return base + uint64(size-n) + 1, n
	case 1:
		return base - 1, n
	case 2, 3:
		return base + uint64(size-n), n
	case 4:
		return base + 1<<32, n
	}
	return base + uint64(step.from%(size-n+1)), n
}

// target is memory that the partner accesses.
type target struct {
	name   string
	at     verbs.Remote
	n      int
	rights verbs.Access // the operation is chosen among those that these permit
	link   int          // index of the connection
}

// regionTarget returns a target in the region of a step; nil if the region is not registered.
func (s *memorySession) regionTarget(step memoryStep) *target {
	r := s.model.Regions[step.region]
	if r == nil {
		return nil
	}
	addr, n := rangeIn(step, r.Base, r.Len)
	return &target{fmt.Sprintf("region %d", step.region+1), verbs.Remote{Addr: addr, RKey: r.RKey}, n, r.Access, linkIn(r.PD, step)}
}

// accessThroughWindow has the partner access memory through a window. In seven of eight steps, a
// free window is bound first.
func (s *memorySession) accessThroughWindow(step memoryStep) {
	if step.n%8 > 0 {
		s.bindIfFree(step)
	}
	w := s.model.Windows[step.window]
	if w == nil {
		return
	}
	addr, n := rangeIn(step, w.Base, max(1, w.Len))
	s.access(step, &target{fmt.Sprintf("window %d", step.window+1), verbs.Remote{Addr: addr, RKey: w.Key}, n, w.Access, s.windowLink(step)})
}

// invalidTarget returns a target with an invalid key: one that was valid before, one that differs
// from a region's key in a bit, 0 or 0xffffffff. It returns nil if there is neither a region nor an
// old key.
func (s *memorySession) invalidTarget(step memoryStep) *target {
	t := &target{name: "an old key", n: 8, link: step.qp}
	r := s.model.Regions[step.region]
	switch {
	case step.n%3 > 0 && r != nil:
		t.name, t.at.Addr = "no object", r.Base
		t.at.RKey = []verbs.RKey{r.RKey ^ 1, r.RKey ^ 0x80, r.RKey ^ 0x100, r.RKey ^ 1<<31, 0, ^verbs.RKey(0)}[step.n/3%6]
	case len(s.stale) > 0:
		t.at = s.stale[step.n%len(s.stale)]
	default:
		return nil
	}
	return t
}

// access has the partner read, write or atomically change the target. The device must execute that
// if the model permits it, else refuse it. Nothing is done without a target (nil), or if the model
// does not know whether its key is valid.
func (s *memorySession) access(step memoryStep, t *target) {
	if t == nil || s.model.MayBeValid(t.at.RKey) {
		return
	}
	l := s.links[t.link]
	op, right := s.operation(step.n/16, t.rights)
	if op == verbs.OpAtomicFetchAdd {
		t.at.Addr, t.n = (t.at.Addr+7)&^7, 8
	}
	off, ok := s.model.Remote(t.link, linkDomains[t.link], t.at, t.n, right)
	s.DUT.Note("%v of %d bytes at %#x with the key %#x, of %s, over connection %d: permitted %v", op, t.n, t.at.Addr, t.at.RKey, t.name, t.link+1, ok)
	if ok {
		s.expectAccess(op, t, off)
		return
	}
	wr := l.partner.writeWR(9, recvOffset, t.n, t.at)
	wr.Opcode, wr.Atomic.CompareAdd = op, 1
	l.expectRefused(fmt.Sprintf("%v %d bytes at %#x of %s", op, t.n, t.at.Addr, t.name), wr)
	s.expectFailed(t.link, true)
}

// operation returns an operation and the right that it needs: the first from index n on that the
// rights permit or, if they permit none and for every seventh n, the one at index n.
func (s *memorySession) operation(n int, rights verbs.Access) (verbs.WROpcode, verbs.Access) {
	all := []struct {
		op    verbs.WROpcode
		right verbs.Access
	}{{verbs.OpRDMARead, verbs.AccessRemoteRead}, {verbs.OpRDMAWrite, verbs.AccessRemoteWrite}, {verbs.OpAtomicFetchAdd, verbs.AccessRemoteAtomic}}
	if !s.DUT.Caps.Has(verbs.CapAtomics) {
		all = all[:2]
	}
	for i := range all {
		if o := all[(n+i)%len(all)]; rights&o.right != 0 || n%7 == 0 {
			return o.op, o.right
		}
	}
	return all[n%len(all)].op, all[n%len(all)].right
}

// windowLink returns the index of the connection over which a step uses its window: mostly that of
// the queue pair to which the window is or was bound, sometimes another, which may be refused.
func (s *memorySession) windowLink(step memoryStep) int {
	w := s.model.Windows[step.window]
	switch {
	case w != nil && w.Region == nil && w.QP >= 0 && step.n/3%2 == 0:
		return w.QP // bound the window before
	case w == nil || w.Region == nil || w.QP < 0:
		return step.qp
	case w.Type == verbs.MWType1:
		return linkIn(w.PD, step)
	case step.n/3%4 == 0 && w.QP < 2 && step.n%8 > 0:
		return 1 - w.QP // in the same domain
	case step.n/3%5 == 0:
		return (w.QP + 1 + step.n%2) % len(s.links)
	}
	return w.QP
}

// expectAccess fails the case unless the device executes an access of the partner to the buffer at
// off.
func (s *memorySession) expectAccess(op verbs.WROpcode, t *target, off int) {
	l, whole := s.links[t.link], s.whole[linkDomains[t.link]]
	switch op {
	case verbs.OpRDMARead:
		l.partner.expectRead(t.at, s.shadow[off:][:t.n])
	case verbs.OpRDMAWrite:
		seed := byte(t.at.Addr) + byte(len(s.stale)) + s.shadow[off] + 1 // varies between steps
		data := rig.Pattern(t.n, seed)
		copy(s.peerMem.Buf[sendOffset:], data)
		copy(s.shadow[off:], data)
		l.partner.execute(l.partner.writeWR(76, sendOffset, t.n, t.at))
		// A READ shows that the WRITE is in memory if the transport does not acknowledge it.
		l.partner.expectRead(verbs.Remote{Addr: whole.Addr() + uint64(off), RKey: whole.RKey()}, data)
	default:
		was := binary.NativeEndian.Uint64(s.shadow[off:])
		l.partner.expectAtomic(op, t.at, verbs.Atomic{CompareAdd: 0x0101_0101_0101_0101}, was)
		binary.NativeEndian.PutUint64(s.shadow[off:], was+0x0101_0101_0101_0101)
	}
}

// expectFailed fails the case unless the device's queue pair of a connection gets to ERR and, if
// the peer caused that and the mix requires events, raises an event. Then it makes another
// connection.
func (s *memorySession) expectFailed(i int, byPeer bool) {
	qp := s.links[i].dut.qp
	s.DUT.AwaitState(qp, errState)
	s.DUT.Sleep(shortWait)
	if found := s.takeEvents(qp); byPeer && s.mix.requireEvents {
		s.DUT.Check(found, "QP_ACCESS_ERR, QP_REQ_ERR or QP_FATAL of the failed queue pair", "no event")
	}
	s.reconnect(i)
	s.takeEvents(qp)
}

// localSGE returns an SGE of the region of a step, and the index of a connection that uses it; nil
// if the region is not registered. Some SGEs have the L_Key of another region, an old key or a
// window's key.
func (s *memorySession) localSGE(step memoryStep) (sge *verbs.SGE, link int) {
	r := s.model.Regions[step.region]
	if r == nil {
		return nil, 0
	}
	addr, n := rangeIn(step, r.Base, r.Len)
	sge = &verbs.SGE{Addr: addr, Length: uint32(n), LKey: r.LKey}
	other, mw := s.model.Regions[(step.region+1)%len(s.regions)], s.model.Windows[step.window]
	switch k := step.n / 16 % 20; {
	case k == 0 && other != nil:
		sge.LKey = other.LKey
	case k == 1 && len(s.stale) > 0:
		sge.LKey = verbs.LKey(s.stale[step.from%len(s.stale)].RKey)
	case k == 2 && mw != nil:
		sge.LKey = verbs.LKey(mw.Key)
	}
	return sge, linkIn(r.PD, step)
}

// sendFrom has the device send from a region, which must fail if the model does not permit it.
func (s *memorySession) sendFrom(step memoryStep) {
	sge, link := s.localSGE(step)
	if sge == nil {
		return
	}
	l := s.links[link]
	off, ok := s.model.Local(linkDomains[link], *sge, false)
	s.DUT.Note("send %d bytes at %#x of region %d over connection %d: permitted %v", sge.Length, sge.Addr, step.region+1, link+1, ok)
	if ok {
		l.dut.expectArrives(l.partner, l.dut.sendOf(2, *sge), s.shadow[off:][:sge.Length])
		return
	}
	l.partner.postRecv(3, recvOffset, 256)
	s.expectLocalFailure(link, l.dut.sendOf(2, *sge))
}

// expectLocalFailure fails the case unless a request of the device fails because of its SGE, and
// makes another connection.
func (s *memorySession) expectLocalFailure(link int, wr verbs.SendWR) {
	dut := s.links[link].dut
	what := fmt.Sprintf("a %v of %d bytes at %#x with the key %#x", wr.Opcode, wr.SGL[0].Length, wr.SGL[0].Addr, wr.SGL[0].LKey)
	if wc, completed := dut.expectFailure(what, wr); completed && isIB(s.DUT) {
		s.DUT.Check(wc.Status == verbs.WCLocProtErr, what+" to fail with LOC_PROT_ERR", "%s", rig.Describe(&wc))
		s.DUT.AwaitState(dut.qp, errState)
	}
	s.reconnect(link)
	s.takeEvents(dut.qp)
}

// readInto has the device read memory of the partner into a region, which must fail if the model
// does not permit it.
func (s *memorySession) readInto(step memoryStep) {
	sge, link := s.localSGE(step)
	if sge == nil || !isIB(s.DUT) && s.model.Regions[step.region].Access&verbs.AccessRemoteWrite == 0 {
		return // iWARP may require the remote write right for the sink of a READ
	}
	l := s.links[link]
	off, ok := s.model.Local(linkDomains[link], *sge, true)
	s.DUT.Note("read %d bytes to %#x of region %d over connection %d: permitted %v", sge.Length, sge.Addr, step.region+1, link+1, ok)
	wr := l.dut.sendOf(2, *sge)
	wr.Opcode, wr.Remote = verbs.OpRDMARead, s.peerMem.Remote(step.from)
	if !ok {
		s.expectLocalFailure(link, wr)
		return
	}
	l.dut.execute(wr)
	copy(s.shadow[off:], s.peerMem.Buf[step.from:][:sge.Length])
}

// receiveInto has the device receive a message of the partner into a region. If the model does not
// permit it, the post or the receive must fail.
func (s *memorySession) receiveInto(step memoryStep) {
	sge, link := s.localSGE(step)
	if sge == nil || s.kind == verbs.QPTypeUD { // a UD receive also needs room for the GRH
		return
	}
	l, n := s.links[link], int(sge.Length)
	off, ok := s.model.Local(linkDomains[link], *sge, true)
	s.DUT.Note("receive %d bytes at %#x of region %d over connection %d: permitted %v", n, sge.Addr, step.region+1, link+1, ok)
	posted, err := l.dut.qp.PostRecv([]verbs.RecvWR{{WRID: 5, SGL: []verbs.SGE{*sge}}})
	if !ok && err != nil {
		s.DUT.Check(posted == 0, "no receive posted if it is refused", "%d", posted)
		return
	}
	s.DUT.Must("a receive", err)
	data := rig.Pattern(n, byte(step.n))
	copy(s.peerMem.Buf[sendOffset:], data)
	l.partner.PostSend(l.partner.qp, l.partner.sendWR(6, sendOffset, n))
	if ok {
		l.partner.ExpectCompletion(6, verbs.WCSuccess)
		s.DUT.ExpectRecv(5, n)
		copy(s.shadow[off:], data)
		return
	}
	wc := s.DUT.NextCompletion()
	s.DUT.Check(wc.WRID == 5 && wc.Status != verbs.WCSuccess, "a receive that fails", "%s", rig.Describe(&wc))
	s.expectFailed(link, false)
}

// toggleWindow frees window i or, if it is not allocated, allocates it. n selects the type and
// domain of the new window.
func (s *memorySession) toggleWindow(i, n int) {
	if w := s.windows[i]; w != nil {
		s.DUT.Must("a window that can be freed", w.Close())
		s.stale = append(s.stale, verbs.Remote{Addr: s.model.Windows[i].Base, RKey: s.model.Windows[i].Key})
		s.windows[i], s.model.Windows[i] = nil, nil
		return
	}
	w := &model.VerbsWindow{Type: verbs.MWType1 + verbs.MWType(n%2)}
	if n%4 == 0 {
		w.PD = 1
	}
	s.windows[i] = rig.Result(s.pds[w.PD].AllocMW(w.Type))(s.DUT, "a window")
	w.Key = s.windows[i].RKey()
	s.DUT.Note("window %d is of type %d, in domain %d, with the key %#x", i+1, w.Type, w.PD+1, w.Key)
	s.model.Windows[i] = w
}

// bind binds the window of a step to a random part of a region, with random rights. If there is no
// window it allocates one instead, and it frees a window in an unknown state.
func (s *memorySession) bind(step memoryStep) {
	w := s.model.Windows[step.window]
	if w == nil || w.Unknown {
		s.toggleWindow(step.window, step.n)
		return
	}
	step.qp = linkIn(w.PD, step)
	if s.regions[step.region] == nil {
		s.register(step)
	}
	if w.Type == verbs.MWType2 && step.n%12 == 5 { // ibv_bind_mw is for type 1 only
		_, err := s.links[step.qp].dut.qp.BindMW(s.windows[step.window], bindID, verbs.SendSignaled, bindRange(s.buf, 0, 8, verbs.AccessRemoteRead))
		s.DUT.MustFail("ibv_bind_mw with a type 2 window", err, verbs.ErrInvalid)
		return
	}
	b := &model.VerbsBind{QP: step.qp, PD: linkDomains[step.qp], Region: s.model.Regions[step.region]}
	b.Addr, b.Len = rangeIn(step, b.Region.Base, b.Region.Len)
	if step.n/10%10 == 0 {
		b.Addr, b.Len = b.Region.Base, 0 // frees a type 1 window
	}
	b.Access = s.windowRights(step.n)
	if step.n/7%8 == 0 && s.DUT.Caps.Has(verbs.CapZeroBased) {
		b.Access |= verbs.AccessZeroBased
	}
	info := verbs.BindInfo{MR: s.regions[step.region], Addr: b.Addr, Length: uint64(b.Len), Access: b.Access}
	ok := w.CanBind(b)
	switch {
	case !ok && b.Len == 0 && w.Type == verbs.MWType1:
		return // a device need not check the region of a bind that frees the window
	case ok && b.Region.Base == 0:
		return // the specification leaves open whether a window can be bound to a zero-based region
	}
	s.DUT.Note("bind window %d of type %d to %d bytes at %#x of region %d, rights %#x: permitted %v", step.window+1, w.Type, b.Len, b.Addr, step.region+1, uint32(b.Access), ok)
	s.postBind(step, info, b, ok)
}

// bindIfFree binds the window of a step if it is free, to a region in its domain that permits local
// writes and binds and is not zero-based. Without such a region it does nothing.
func (s *memorySession) bindIfFree(step memoryStep) {
	w := s.model.Windows[step.window]
	i := slices.IndexFunc(s.model.Regions, func(r *model.VerbsRegion) bool {
		return r != nil && w != nil && r.PD == w.PD && r.Base != 0 && r.Access&regionAccess(s.DUT, 0) == regionAccess(s.DUT, 0)
	})
	if w == nil || w.Unknown || w.Region != nil || i < 0 {
		return
	}
	for linkDomains[step.qp] != w.PD {
		step.qp = (step.qp + 1) % len(s.links)
	}
	r := s.model.Regions[i]
	b := &model.VerbsBind{QP: step.qp, PD: w.PD, Region: r, Addr: r.Base + uint64(step.from%32), Len: 32, Access: s.windowRights(step.n)}
	s.DUT.Note("bind window %d of type %d to %d bytes at %#x of region %d, rights %#x", step.window+1, w.Type, b.Len, b.Addr, i+1, uint32(b.Access))
	s.postBind(step, verbs.BindInfo{MR: s.regions[i], Addr: b.Addr, Length: uint64(b.Len), Access: b.Access}, b, true)
}

// windowRights returns the rights of a window, by n: remote read, remote write or all.
func (s *memorySession) windowRights(n int) verbs.Access {
	return []verbs.Access{verbs.AccessRemoteRead, verbs.AccessRemoteWrite, rig.RemoteAccess(s.DUT)}[n%3]
}

// postBind binds a window: type 1 by ibv_bind_mw, type 2 by a request, which in some steps has an
// invalid key. The bind must succeed if it is permitted and the key is valid, else be refused or
// complete with MW_BIND_ERR.
func (s *memorySession) postBind(step memoryStep, info verbs.BindInfo, b *model.VerbsBind, permitted bool) {
	w, mw, dut := s.model.Windows[step.window], s.windows[step.window], s.links[step.qp].dut
	var err error
	key := verbs.NextRKey(w.Key)
	if w.Type == verbs.MWType2 && step.n%19 == 6 {
		key, permitted = key^0x100, false // only the low eight bits may change
		s.DUT.Note("the bind has the invalid key %#x", key)
	}
	if w.Type == verbs.MWType1 {
		key, err = dut.qp.BindMW(mw, bindID, verbs.SendSignaled, info)
		s.DUT.Check(err != nil || key != w.Key, "a new key", "%#x again", key)
	} else {
		_, err = dut.qp.PostSend([]verbs.SendWR{bindWR(mw, key, info)})
	}
	if !permitted && err != nil {
		return
	}
	s.DUT.Must("a bind", err)
	if !permitted {
		dut.ExpectCompletion(bindID, verbs.WCMWBindErr)
		w.Unknown = true
		s.expectFailed(step.qp, false)
		return
	}
	wc := dut.ExpectCompletion(bindID, verbs.WCSuccess)
	s.DUT.Check(wc.Opcode == verbs.WCOpBindMW, verbs.WCOpBindMW.String(), "%v", wc.Opcode)
	if w.Region != nil {
		s.stale = append(s.stale, verbs.Remote{Addr: w.Base, RKey: w.Key})
	}
	w.Bind(b, key)
}

// invalidateLocally posts a local invalidate of the key of a bound window. It must fail if the
// model does not permit it.
func (s *memorySession) invalidateLocally(step memoryStep) {
	s.bindIfFree(step)
	step.qp = s.windowLink(step)
	w := s.model.Windows[step.window]
	if w == nil || w.Unknown || w.Region == nil {
		return // IBTA leaves open what the invalidation of a free window does
	}
	dut := s.links[step.qp].dut
	wr := verbs.SendWR{WRID: 8, Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: w.Key}
	ok := s.model.CanInvalidate(step.qp, w.Key) == w
	s.DUT.Note("local invalidate of window %d, key %#x: permitted %v", step.window+1, w.Key, ok)
	if ok {
		wc := dut.execute(wr)
		s.DUT.Check(wc.Opcode == verbs.WCOpLocalInv, verbs.WCOpLocalInv.String(), "%v", wc.Opcode)
		s.invalidated(w)
		return
	}
	if _, completed := dut.expectFailure(fmt.Sprintf("a local invalidate of window %d", step.window+1), wr); completed {
		s.expectFailed(step.qp, false)
	}
}

// invalidated notes that the key of a window was invalidated.
func (s *memorySession) invalidated(w *model.VerbsWindow) {
	s.stale = append(s.stale, verbs.Remote{Addr: w.Base, RKey: w.Key})
	w.Region = nil
}

// invalidateRemotely has the partner send a message that invalidates the key of a window: a bound
// one or, if the mix has hazards, also a free one. It must fail if the model does not permit it.
func (s *memorySession) invalidateRemotely(step memoryStep) {
	if !s.mix.hazards || step.n%3 > 0 {
		s.bindIfFree(step)
	}
	step.qp = s.windowLink(step)
	w := s.model.Windows[step.window]
	if w == nil || w.Unknown || w.Region == nil && !s.mix.hazards {
		return
	}
	l := s.links[step.qp]
	ok := s.model.CanInvalidate(step.qp, w.Key) == w
	s.DUT.Note("message that invalidates window %d, key %#x: permitted %v", step.window+1, w.Key, ok)
	if !ok {
		l.expectInvalidateFails(fmt.Sprintf("window %d", step.window+1), w.Key)
		s.expectFailed(step.qp, false)
	} else {
		wr := l.partner.sendWR(32, sendOffset, 16)
		wr.Opcode, wr.InvalidateRKey = verbs.OpSendInv, w.Key
		wc := l.partner.expectArrives(l.dut, wr, s.peerMem.Buf[sendOffset:][:16])
		s.DUT.Check(wc.Flags&verbs.WCWithInv != 0 && wc.InvalidatedRKey == w.Key,
			fmt.Sprintf("a completion that names the key %#x", w.Key), "flags %#x, key %#x", uint32(wc.Flags), wc.InvalidatedRKey)
		s.invalidated(w)
	}
}
