package rd

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
)

var lossDefects = map[string]defectCase{
	"NoWindow": {
		talk: func(c *talking) string {
			c.meet()
			c.lose = silent(c)
			for c.x.send(c.y, 10) && c.x.sending[c.x.key(c.y)] < 400 {
			}
			c.sleep(500 * time.Microsecond)
			return fmt.Sprint(c.count(isData))
		},
		sound: "17", defective: "399",
	},
	"NoPacing": {
		talk: func(c *talking) string {
			c.meet()
			c.lose = silent(c)
			p := c.x.layer.peers[c.x.key(c.y)]
			p.srtt, p.cwnd = uint32(time.Second), 100
			for range 100 {
				c.x.send(c.y, 10)
			}
			c.sleep(time.Microsecond)
			return fmt.Sprint(c.count(isData))
		},
		sound: "32", defective: "100",
	},
	"TimeoutFixed": {
		talk: func(c *talking) string {
			c.meet()
			c.lose = silent(c)
			c.x.send(c.y, 10)
			c.sleep(101 * time.Millisecond)
			return fmt.Sprint(c.count(isData))
		},
		sound: "7", defective: "11",
	},
	"TimeoutLosesOne": {
		talk: func(c *talking) string {
			c.meet()
			c.lose = silent(c)
			for range 4 {
				c.x.send(c.y, 10)
			}
			c.sleep(1900 * time.Microsecond)
			return fmt.Sprint(c.count(isData))
		},
		sound: "8", defective: "5",
	},
	"NoEarlyResend": {
		talk: func(c *talking) string {
			c.meet()
			for range 8 {
				c.x.send(c.y, 10)
			}
			lost := true
			c.lose = func(from *host, k *wire.Packet) bool {
				was := lost && from == c.x && isData(k) && k.Data.Seq == 1
				lost = lost && !was
				return was
			}
			c.sleep(900 * time.Microsecond)
			return fmt.Sprint(c.x.layer.Count.LossesSeen, c.x.acked[c.x.key(c.y)])
		},
		sound: "1 9", defective: "0 1",
	},
	"OneLaterTells": {
		talk: func(c *talking) string {
			c.meet()
			// The first of three comes behind the second; the third is on its way.
			late := true
			c.lose = func(from *host, k *wire.Packet) bool {
				was := from == c.x && isData(k) && (k.Data.Seq == 1 && late || k.Data.Seq > 2)
				late = late && !was
				return was
			}
			for range 8 {
				c.x.send(c.y, 10)
			}
			c.sleep(300 * time.Microsecond)
			return fmt.Sprint(c.x.layer.Count.LossesSeen > 0)
		},
		sound: "false", defective: "true",
	},
	"NeverGivesUp": {
		talk: func(c *talking) string {
			c.meet()
			c.lose = silent(c)
			c.x.send(c.y, 10)
			c.sleep(time.Minute)
			return fmt.Sprint(c.x.failed)
		},
		sound: "[peer does not acknowledge]", defective: "[]",
	},
	"BusyHammers": {
		talk: func(c *talking) string {
			c.meet()
			c.y.receives = 0
			c.x.send(c.y, 10)
			c.sleep(2 * time.Second)
			return fmt.Sprint(c.count(isData) > 1000, c.x.failed)
		},
		sound: "false []", defective: "true [peer stays busy]",
	},
	"NoResume": {
		talk: func(c *talking) string {
			c.meet()
			c.x.receives = 0
			c.come(1)
			c.sleep(time.Millisecond)
			c.said, c.x.receives = nil, 1
			c.x.layer.Resume(testQP, 1)
			c.sleep(time.Millisecond)
			told := c.count(isAck)
			c.come(1)
			return fmt.Sprint(told, c.got())
		},
		sound: "1 [0 1]", defective: "0 [0 1]",
	},
}

var idleDefects = map[string]defectCase{
	"FlowGoesOn": {
		talk: func(c *talking) string {
			c.meet()
			before := c.x.layer.peers[c.x.key(c.y)].epoch
			c.sleep(25 * time.Second)
			c.x.send(c.y, 10)
			after := c.x.layer.peers[c.x.key(c.y)].epoch
			c.sleep(time.Minute)
			return fmt.Sprint(before == after, c.x.layer.Peers())
		},
		sound: "false 0", defective: "true 1",
	},
	"ForgetsEarly": {
		talk: func(c *talking) string {
			c.meet()
			c.sleep(6 * time.Second)
			c.come(1)
			c.sleep(time.Millisecond)
			return fmt.Sprint(c.got(), c.x.layer.Count.SentRefusals)
		},
		sound: "[0 1] 0", defective: "[0] 1",
	},
	"EvictsOldest": {
		talk: func(c *talking) string {
			for range 3 {
				h := c.host(Config{})
				h.send(c.x, 10)
				c.sleep(time.Millisecond)
			}
			c.y.send(c.x, 10)
			c.sleep(5 * time.Millisecond)
			return fmt.Sprint(c.got(), c.x.gone, c.x.layer.Peers())
		},
		sound: "[] 0 3", defective: "[0] 1 3",
	},
}
