// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"math"
	"math/bits"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata"
)

// field is an attribute of records.
type field uint8

// The fields, in the order in which records have them.
const (
	fieldTransport field = iota
	fieldNetworkType
	fieldLocalAddress
	fieldLocalPort
	fieldPeerAddress
	fieldPeerPort
	fieldState
	fieldCookie
	fieldOwner
	fieldThreadID
	fieldThreadVTID
	fieldThreadName
	fieldRole
	fieldHandshakeDuration
	fieldAcceptWait
	fieldSynRetransmits
	fieldErrorType
	fieldErrno
	fieldRetransmitAttempt
	fieldRetransmitCount
	fieldRetransmitType
	fieldResetReason
	fieldResetReasonSource
	fieldSRTT
	fieldRTTVar
	fieldRTO
	fieldCwnd
	fieldSsthresh
	fieldRetransmitsTotal
	fieldSegmentsLost
	fieldSegmentsOutstanding
	fieldSegmentsDuplicate
	fieldSendWindow
	fieldReceiveWindow
	fieldSendQueueSize
	fieldReceiveQueueSize
	fieldLastSendAge
	fieldLastReceiveAge
	fieldConnectionAge
	fieldCount
)

var fields = [fieldCount]struct {
	name string
	kind pcommon.ValueType
}{
	fieldTransport:           {metadata.AttributeNetworkTransport, pcommon.ValueTypeStr},
	fieldNetworkType:         {metadata.AttributeNetworkType, pcommon.ValueTypeStr},
	fieldLocalAddress:        {metadata.AttributeNetworkLocalAddress, pcommon.ValueTypeStr},
	fieldLocalPort:           {metadata.AttributeNetworkLocalPort, pcommon.ValueTypeInt},
	fieldPeerAddress:         {metadata.AttributeNetworkPeerAddress, pcommon.ValueTypeStr},
	fieldPeerPort:            {metadata.AttributeNetworkPeerPort, pcommon.ValueTypeInt},
	fieldState:               {metadata.AttributeNetworkConnectionState, pcommon.ValueTypeStr},
	fieldCookie:              {metadata.AttributeSocketCookie, pcommon.ValueTypeInt},
	fieldOwner:               {metadata.AttributeOwner, pcommon.ValueTypeStr},
	fieldThreadID:            {metadata.AttributeThreadID, pcommon.ValueTypeInt},
	fieldThreadVTID:          {metadata.AttributeThreadVTID, pcommon.ValueTypeInt},
	fieldThreadName:          {metadata.AttributeThreadName, pcommon.ValueTypeStr},
	fieldRole:                {metadata.AttributeTCPHandshakeRole, pcommon.ValueTypeStr},
	fieldHandshakeDuration:   {metadata.AttributeTCPHandshakeDuration, pcommon.ValueTypeDouble},
	fieldAcceptWait:          {metadata.AttributeTCPAcceptQueueWaitDuration, pcommon.ValueTypeDouble},
	fieldSynRetransmits:      {metadata.AttributeTCPSynRetransmits, pcommon.ValueTypeInt},
	fieldErrorType:           {metadata.AttributeErrorType, pcommon.ValueTypeStr},
	fieldErrno:               {metadata.AttributeErrno, pcommon.ValueTypeInt},
	fieldRetransmitAttempt:   {metadata.AttributeTCPRetransmitAttempt, pcommon.ValueTypeInt},
	fieldRetransmitCount:     {metadata.AttributeTCPRetransmitCount, pcommon.ValueTypeInt},
	fieldRetransmitType:      {metadata.AttributeTCPRetransmitType, pcommon.ValueTypeStr},
	fieldResetReason:         {metadata.AttributeTCPResetReason, pcommon.ValueTypeStr},
	fieldResetReasonSource:   {metadata.AttributeTCPResetReasonSource, pcommon.ValueTypeStr},
	fieldSRTT:                {metadata.AttributeTCPSRTT, pcommon.ValueTypeDouble},
	fieldRTTVar:              {metadata.AttributeTCPRTTVar, pcommon.ValueTypeDouble},
	fieldRTO:                 {metadata.AttributeTCPRTO, pcommon.ValueTypeDouble},
	fieldCwnd:                {metadata.AttributeTCPCwnd, pcommon.ValueTypeInt},
	fieldSsthresh:            {metadata.AttributeTCPSsthresh, pcommon.ValueTypeInt},
	fieldRetransmitsTotal:    {metadata.AttributeTCPRetransmitsTotal, pcommon.ValueTypeInt},
	fieldSegmentsLost:        {metadata.AttributeTCPSegmentsLost, pcommon.ValueTypeInt},
	fieldSegmentsOutstanding: {metadata.AttributeTCPSegmentsOutstanding, pcommon.ValueTypeInt},
	fieldSegmentsDuplicate:   {metadata.AttributeTCPSegmentsDuplicate, pcommon.ValueTypeInt},
	fieldSendWindow:          {metadata.AttributeTCPSendWindow, pcommon.ValueTypeInt},
	fieldReceiveWindow:       {metadata.AttributeTCPReceiveWindow, pcommon.ValueTypeInt},
	fieldSendQueueSize:       {metadata.AttributeTCPSendQueueSize, pcommon.ValueTypeInt},
	fieldReceiveQueueSize:    {metadata.AttributeTCPReceiveQueueSize, pcommon.ValueTypeInt},
	fieldLastSendAge:         {metadata.AttributeTCPLastSendAge, pcommon.ValueTypeDouble},
	fieldLastReceiveAge:      {metadata.AttributeTCPLastReceiveAge, pcommon.ValueTypeDouble},
	fieldConnectionAge:       {metadata.AttributeTCPConnectionAge, pcommon.ValueTypeDouble},
}

// maxShapes bounds the shapes held; a few dozen occur.
const maxShapes = 256

// attributes collects the attributes of one record and pours them into pdata at once. Putting them there one by one compares each
// name with all before it, a sixth of the cost of a record; so the empty attributes are copied from an earlier record that had
// the same ones, and only values are set.
type attributes struct {
	present uint64 // bit f: there is a field f
	strings [fieldCount]string
	numbers [fieldCount]uint64     // int64, or the bits of a float64
	shapes  map[uint64]pcommon.Map // empty attributes, by present
}

func (a *attributes) reset() { a.present = 0 }

// putString adds a string; an empty one is not known and adds none.
func (a *attributes) putString(f field, value string) {
	if value != "" {
		a.present |= 1 << f
		a.strings[f] = value
	}
}

// putInt adds a number.
func (a *attributes) putInt(f field, value int64) {
	a.present |= 1 << f
	a.numbers[f] = uint64(value)
}

// putKnown adds a number of which 0 means that it is not known.
func (a *attributes) putKnown(f field, value int64) {
	if value != 0 {
		a.putInt(f, value)
	}
}

// putDuration adds a duration in seconds; a negative one is not known and adds none.
func (a *attributes) putDuration(f field, d time.Duration) {
	if d >= 0 {
		a.present |= 1 << f
		a.numbers[f] = math.Float64bits(float64(d) / 1e9)
	}
}

// pour writes the attributes to an empty map.
func (a *attributes) pour(to pcommon.Map) {
	a.shape().CopyTo(to)
	rest := a.present
	to.Range(func(_ string, value pcommon.Value) bool {
		f := bits.TrailingZeros64(rest)
		rest &= rest - 1
		switch fields[f].kind {
		case pcommon.ValueTypeStr:
			value.SetStr(a.strings[f])
		case pcommon.ValueTypeInt:
			value.SetInt(int64(a.numbers[f]))
		case pcommon.ValueTypeDouble:
			value.SetDouble(math.Float64frombits(a.numbers[f]))
		}
		return true
	})
}

// shape is a map with the names of the fields there are, without values.
func (a *attributes) shape() pcommon.Map {
	if shape, ok := a.shapes[a.present]; ok {
		return shape
	}
	if len(a.shapes) >= maxShapes || a.shapes == nil {
		a.shapes = map[uint64]pcommon.Map{}
	}
	shape := pcommon.NewMap()
	for rest := a.present; rest != 0; rest &= rest - 1 {
		shape.PutEmpty(fields[bits.TrailingZeros64(rest)].name)
	}
	a.shapes[a.present] = shape
	return shape
}
