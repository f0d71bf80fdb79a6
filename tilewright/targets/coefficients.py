"""Coefficients of exp, log, tanh, erf, sin, cos and tan in f32: polynomials and split constants.

Input: none.  Output: the tables from which every target computes these functions. `lab/mathfit.py`
computed the coefficients.
"""

from __future__ import annotations

#: Polynomial coefficients, lowest power first, as `lab/mathfit.py` computes them.
COEFFICIENTS: dict[str, tuple[float, ...]] = {
    "EXP": (
        0.5000024437904358,
        0.16662977635860443,
        0.04186376929283142,
        0.007853618822991848,
        0.0019212665501981974,
    ),
    "EXPM1": (
        0.5,
        0.16666537523269653,
        0.041666265577077866,
        0.008367239497601986,
        0.001394758466631174,
    ),
    "LOG": (
        0.33333316445350647,
        -0.25000810623168945,
        0.20002280175685883,
        -0.1662452220916748,
        0.14181303977966309,
        -0.1312922239303589,
        0.1288098841905594,
        -0.07857383042573929,
    ),
    "SIN": (
        -0.16666655242443085,
        0.008332171477377415,
        -0.0001951638696482405,
    ),
    "COS": (
        0.04166664555668831,
        -0.0013887358363717794,
        2.443742960167583e-05,
    ),
    "TAN": (
        0.3333313465118408,
        0.1333930343389511,
        0.05337268486618996,
        0.024558937177062035,
        0.0029250166844576597,
        0.009495017118752003,
    ),
    "ERF": (
        1.128379225730896,
        0.6366193890571594,
        0.10277783125638962,
        -0.019153064116835594,
        -0.00016039599722716957,
        0.001667027361690998,
        -0.0006328367744572461,
        0.00011764124064939097,
        -9.25626045500394e-06,
    ),
}

LOG2E = 1.4426950408889634

#: ln 2 as the sum of two numbers; n * LN2_HIGH is exact for |n| < 256.
LN2_HIGH = 0.693145751953125
LN2_LOW = 0.6931471805599453 - LN2_HIGH

#: pi / 2 as the sum of four numbers; n times each of the first three is exact for |n| < 8192.
HALF_PI = (1.5703125, 0.0004837512969970703, 7.549533620476723e-08, 2.5633440682570896e-12)

#: 1 / 2 pi as 256 bits after the point, scaled by 2^-10: reduces arguments of 2^13 or more.
TURNS_BELOW = 10
TURNS = 0x000A2F9836E4E441529FC2757D1F534D_DC0DB6295993C439041FE5163ABDEBBC
