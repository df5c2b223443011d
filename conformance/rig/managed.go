package rig

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/verbs"
)

// managed connects two ends by the connection manager. The partner listens: devices are
// known that do not see the first message of who connects to them before the second.
func managed(near, far *PairEnd) {
	at := far.Address().GID.Addr()
	listener, err := far.Manager().Listen(netip.AddrPortFrom(at, 0), verbs.PortSpaceTCP, 1)
	far.Do("a listener", err)
	param := verbs.ConnParam{ResponderResources: Readers, InitiatorDepth: Readers, RetryCount: 7, RNRRetryCount: 7}
	dialing := near.Go("the device connects", func() error {
		return Caught(func() {
			_, err := near.Manager().Connect(near.QP, listener.Addr(), param, near.Patience())
			near.Do("a connection", err)
		})
	})
	req, err := listener.GetRequest(far.Patience())
	far.Do("a request for a connection", err)
	_, err = req.Accept(far.QP, param, far.Patience())
	far.Do("a connection that can be accepted", err)
	near.Do("a connection", dialing.Wait(near.Patience()))
	far.Do("a listener that can be closed", listener.Close())
}
