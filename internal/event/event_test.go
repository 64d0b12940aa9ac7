// SPDX-License-Identifier: Apache-2.0

package event

import (
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// bound <= 10^9 * 2^(k/4) < bound+1, compared exactly by fourth powers.
func TestExponentialBoundsAreTheLastWholeNanosecondOfTheirBucket(t *testing.T) {
	bounds := ExponentialBounds()
	require.Len(t, bounds, MaxBounds)
	require.True(t, slices.IsSorted(bounds))
	power4 := func(n uint64) *big.Rat {
		x := new(big.Int).SetUint64(n)
		return new(big.Rat).SetInt(x.Exp(x, big.NewInt(4), nil))
	}
	second4 := power4(1_000_000_000)
	for i, bound := range bounds {
		k := ExponentialOffset + i + 1
		exact := new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(max(k, -k))))
		if k < 0 {
			exact.Inv(exact)
		}
		exact.Mul(exact, second4)
		require.LessOrEqual(t, power4(bound).Cmp(exact), 0, "bound %d (%d ns) is above 2^(%d/4) s", i, bound, k)
		require.Positive(t, power4(bound+1).Cmp(exact), "bound %d (%d ns) is not the last nanosecond below 2^(%d/4) s", i, bound, k)
	}
}

func TestExplicitBoundsAreSixteenAscending(t *testing.T) {
	require.Len(t, ExplicitBounds(), 16)
	require.True(t, slices.IsSorted(ExplicitBounds()))
}

func TestNamesOfNumbersOutOfRangeAreTheUnknownOnes(t *testing.T) {
	require.Equal(t, "unknown", Kind(200).String())
	require.Equal(t, "_OTHER", Outcome(200).String())
	require.Equal(t, "none", OwnerSource(200).String())
	require.Empty(t, State(200).String())
	require.Empty(t, SegmentType(200).String())
	require.Empty(t, RetransmitType(200).String())
}

func TestEveryNumberHasAName(t *testing.T) {
	for k := range KindCount {
		require.NotEmpty(t, k.String())
	}
	for o := OutcomeOK + 1; o < OutcomeCount; o++ {
		require.NotEmpty(t, o.String())
	}
	for s := StateUnknown + 1; s < StateCount; s++ {
		require.NotEmpty(t, s.String())
	}
	require.Equal(t, []string{"client", "server"}, []string{RoleClient.String(), RoleServer.String()})
	require.Equal(t, []string{"transmit", "receive"}, []string{DirectionTransmit.String(), DirectionReceive.String()})
}

func TestCountIsTheSumOfAllBuckets(t *testing.T) {
	var h Histogram
	h.Buckets[0], h.Buckets[MaxBounds] = 2, 3
	require.EqualValues(t, 5, h.Count())
}
