package etherwire

import (
	"encoding/binary"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const sizeofTimespec = int(unsafe.Sizeof(unix.Timespec{}))

// timespec parses the timestamp of a control message.
func timespec(b []byte) time.Time {
	if sizeofTimespec == 8 {
		return time.Unix(int64(int32(nativeUint32(b))), int64(int32(nativeUint32(b[4:]))))
	}
	return time.Unix(int64(binary.NativeEndian.Uint64(b)), int64(binary.NativeEndian.Uint64(b[8:])))
}

func nativeUint32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }
