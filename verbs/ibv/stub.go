//go:build !(ibverbs && linux && cgo)

package ibv

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// Linked says whether this program was built with libibverbs.
const Linked = false

// Devices implements verbs.Provider. It fails.
func (Provider) Devices() ([]verbs.DeviceInfo, error) { return nil, notLinked("get_device_list", "") }

// Open implements verbs.Provider. It fails.
func (Provider) Open(device string) (verbs.Context, error) {
	return nil, notLinked("open_device", device)
}

// notLinked returns the error of a verb, which says how to build a program with libibverbs.
func notLinked(op, device string) error {
	return &verbs.OpError{Op: op, Obj: device, Err: fmt.Errorf(
		"%w: this program was built without libibverbs; on Linux: apt install libibverbs-dev librdmacm-dev, then go build -tags ibverbs with cgo enabled",
		verbs.ErrNotSupported)}
}
